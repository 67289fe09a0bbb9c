package agent_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod/agent"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/numa/numatest"
	"monopod/agent/resources/topology"
	"monopod/apiserver/kit/client"
	"monopod/testdata/deviceplugin/plugin"
	"monopod/testdata/deviceplugin/sockets"
	"monopod/testdata/deviceplugin/sockets/socketstest"
)

const gadgets = "example.com/gadget"

// withPlugins restarts the agent with device plugins.
func (w *world) withPlugins() *sockets.Memory {
	p := new(sockets.Memory)
	w.stop()
	before := w.adjust
	w.adjust = func(c *agent.Config) {
		if before != nil {
			before(c)
		}
		c.Devices = deviceplugin.Config{Dir: filepath.Join(w.dir, "device-plugins"), Listen: p.Listen, Dial: p.Dial}
	}
	w.startAgent()
	synctest.Wait()
	return p
}

// plug starts a plugin with the devices.
func (w *world) plug(p *sockets.Memory, cfg plugin.Config, ids ...string) (pull func()) {
	cfg.Dir = filepath.Join(w.dir, "device-plugins")
	cfg.Name = "g.sock"
	cfg.Resource = gadgets
	cfg.Listen = p.Listen
	cfg.Dial = p.Dial
	cfg.Devices = append(cfg.Devices, plugin.Devices(ids...)...)
	pull = socketstest.Plug(w, plugin.New(cfg).Serve)
	w.after(10 * time.Millisecond)
	return pull
}

// gadgetPod requests n gadgets.
func gadgetPod(name string, n int64) *corev1.Pod {
	p := pod(name, "serve")
	list := corev1.ResourceList{gadgets: *resource.NewQuantity(n, resource.DecimalSI)}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	return p
}

// offers returns the node's capacity and allocatable number of gadgets.
func (w *world) offers() (capacity, allocatable int64) {
	w.Helper()
	node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
	if err != nil {
		w.Fatal(err)
	}
	c, a := node.Status.Capacity[gadgets], node.Status.Allocatable[gadgets]
	return c.Value(), a.Value()
}

// held returns the IDs and health of the pod's gadgets.
func held(p *corev1.Pod) (out []string) {
	for _, s := range p.Status.ContainerStatuses {
		for _, r := range s.AllocatedResourcesStatus {
			for _, d := range r.Resources {
				out = append(out, string(d.ResourceID)+" "+string(d.Health))
			}
		}
	}
	return out
}

func failedAs(reason, message string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == reason && strings.Contains(p.Status.Message, message)
	}
}

func TestDevices(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.withPlugins()
		pull := w.plug(p, plugin.Config{}, "g1", "g2")
		if c, a := w.offers(); c != 2 || a != 2 {
			t.Errorf("the node has capacity %d, allocatable %d, want 2 and 2", c, a)
		}
		w.create(gadgetPod("one", 1))
		w.until(time.Second, "one", ready)
		if got := held(w.get("one")); !slices.Equal(got, []string{"g1 Healthy"}) {
			t.Errorf("the pod has %v, want g1", got)
		}
		w.create(gadgetPod("many", 2))
		w.until(time.Second, "many", failedAs("OutOf"+gadgets, "requested: 2, used: 1, capacity: 2"))

		pull()
		w.after(time.Second)
		if c, a := w.offers(); c != 2 || a != 0 {
			t.Errorf("without the plugin, the node has capacity %d, allocatable %d, want 2 and 0", c, a)
		}
		w.until(time.Second, "one", func(p *corev1.Pod) bool { return slices.Equal(held(p), []string{"g1 Unhealthy"}) })
		w.after(5 * time.Minute)
		if c, a := w.offers(); c != 0 || a != 0 || !ready(w.get("one")) {
			t.Errorf("five minutes later, the node has capacity %d, allocatable %d, want 0 and 0", c, a)
		}
		w.delete("one", 0)
		w.delete("many", 0)
		w.until(time.Second, "one", gone)
		w.nothingLeft()
	})
}

func TestDevicesOutliveTheAgent(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.withPlugins()
		pull := w.plug(p, plugin.Config{}, "g1", "g2")
		w.create(gadgetPod("one", 2))
		w.until(time.Second, "one", ready)
		pull()
		w.stop()
		w.startAgent()
		w.after(time.Second)
		if p := w.get("one"); !ready(p) || !slices.Equal(held(p), []string{"g1 Unknown", "g2 Unknown"}) {
			t.Errorf("after a restart: %s %v", p.Status.Phase, held(p))
		}
		w.plug(p, plugin.Config{}, "g1", "g2")
		w.until(time.Second, "one",
			func(p *corev1.Pod) bool { return slices.Equal(held(p), []string{"g1 Healthy", "g2 Healthy"}) })
		w.delete("one", 1)
		w.until(2*time.Second, "one", gone)
		w.create(gadgetPod("two", 2))
		w.until(time.Second, "two", ready)
	})
}

func TestPodWaitsForItsPlugin(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.withPlugins()
		pull := w.plug(p, plugin.Config{}, "g1")
		w.create(gadgetPod("one", 1))
		w.until(time.Second, "one", ready)
		pull()
		w.stop()
		sandboxes, err := w.rt.ListPodSandbox(w.Context(), nil)
		if err != nil || len(sandboxes) != 1 {
			t.Fatal(sandboxes, err)
		}
		if err := w.rt.StopPodSandbox(w.Context(), sandboxes[0].Id); err != nil { // as after a power failure
			t.Fatal(err)
		}
		w.startAgent()
		w.until(time.Second, "one", func(p *corev1.Pod) bool {
			return waitingFor("ContainerCreating")(p) &&
				strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, "device plugin of "+gadgets)
		})
		w.after(time.Hour)
		if !w.hasEvent("WaitingForDevicePlugin: the device plugin of " + gadgets + " is not registered") {
			t.Errorf("events: %v", w.recorded())
		}
		w.plug(p, plugin.Config{}, "g1")
		w.until(time.Second, "one", ready)
	})
}

func TestPluginRejectsAllocation(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.withPlugins()
		w.plug(p, plugin.Config{Refuse: func(string, []string) error { return errors.New("out of order") }}, "g1")
		w.create(gadgetPod("one", 1))
		w.until(time.Second, "one", failedAs("UnexpectedAdmissionError",
			"Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = out of order, which is unexpected"))
		w.delete("one", 0)
		w.until(time.Second, "one", gone)
		w.nothingLeft()
	})
}

func TestPreStartFails(t *testing.T) {
	inWorld(t, func(w *world) {
		broken := true
		p := w.withPlugins()
		w.plug(p, plugin.Config{Options: &api.DevicePluginOptions{PreStartRequired: true},
			Refuse: func(call string, _ []string) error {
				if call == "PreStartContainer" && broken {
					return errors.New("not yet")
				}
				return nil
			}}, "g1")
		w.create(gadgetPod("one", 1))
		w.until(time.Second, "one", waitingFor("CreateContainerConfigError"))
		broken = false
		w.until(20*time.Second, "one", ready)
	})
}

func TestForeignExtendedResources(t *testing.T) {
	inWorld(t, func(w *world) {
		w.withPlugins()
		w.create(gadgetPod("unknown", 3)) // no plugin of this node offers gadgets
		w.until(time.Second, "unknown", ready)
		node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Update(w.Context(), w.api, node, "status", func(n *corev1.Node) error {
			n.Status.Capacity["example.com/dongle"] = resource.MustParse("4")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.after(11 * time.Minute)
		node, err = client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
		if q := node.Status.Allocatable["example.com/dongle"]; err != nil || q.Value() != 4 {
			t.Errorf("allocatable: %v, %v", &q, err)
		}
	})
}

// TestDevicesAlignWithCPUs checks that the devices and CPUs of a container are on one NUMA node, or that the node
// rejects the pod.
func TestDevicesAlignWithCPUs(t *testing.T) {
	inWorld(t, func(w *world) {
		two := numatest.Shape{Sockets: 2, Nodes: 1, Cores: 4, Threads: 1} // nodes 0-3 and 4-7
		w.pinned(two, func(c *agent.Config) {
			c.Topology = topology.Config{Policy: topology.SingleNode, Scope: topology.ScopeContainer}
		})
		w.plug(w.withPlugins(),
			plugin.Config{Devices: []*api.Device{plugin.At("a", 0), plugin.At("b", 1), plugin.At("c", 1)}})
		near := func(name, cpu string, n int64) *corev1.Pod {
			p := owning(name, cpu)
			for _, list := range []corev1.ResourceList{p.Spec.Containers[0].Resources.Limits,
				p.Spec.Containers[0].Resources.Requests} {
				list[gadgets] = *resource.NewQuantity(n, resource.DecimalSI)
			}
			return p
		}
		w.runs(near("two", "2", 2))
		w.on(map[string]string{"two": "4-5"})
		if got := held(w.get("two")); !slices.Equal(got, []string{"b Healthy", "c Healthy"}) {
			t.Errorf("the pod has %v", got)
		}
		w.create(near("far", "4", 1)) // the device is on node 0, which lacks four free CPUs
		w.refused("far", "TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality")
		w.runs(near("one", "3", 1))
		w.on(map[string]string{"two": "4-5", "one": "1-3"})
	})
}
