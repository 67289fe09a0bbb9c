package deviceplugin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod/agent/resources/deviceplugin/checkpoint"
	"monopod/agent/resources/topology"
	"monopod/agent/resources/topology/topologytest"
	"monopod/testdata/deviceplugin/plugin"
)

func TestNotEnough(t *testing.T) {
	inBubble(t, func(b *bench) {
		if err := b.admit(asking("u0", 1)); err != nil {
			t.Errorf("pod with a resource that no plugin offers: %v", err)
		}
		p, pull := b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2")})
		if err := b.admit(asking("u1", 1, 2)); err == nil ||
			err.Error() != "requested number of devices unavailable for example.com/dev. Requested: 2, Available: 1" {
			t.Errorf("request of three devices out of two: %v", err)
		}
		b.Release("u1")
		b.mustAdmit(asking("u2", 1, 1))
		if n := b.Taken()[res]; n != 2 {
			t.Errorf("%d devices allocated, want 2", n)
		}
		b.Release("u2")
		sick := plugin.Devices("d1")
		sick[0].Health = api.Unhealthy
		p.Set(sick)
		synctest.Wait()
		const unhealthy = "no healthy devices present; cannot allocate unhealthy devices example.com/dev"
		if err := b.admit(asking("u3", 1)); err == nil || err.Error() != unhealthy {
			t.Errorf("only unhealthy devices: %v", err)
		}
		pull()
		if err := b.admit(asking("u4", 1)); err == nil || err.Error() != unhealthy {
			t.Errorf("without the plugin: %v", err)
		}
	})
}

func TestPluginFails(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, _ := b.plug(plugin.Config{Devices: plugin.Devices("d1"), Options: &api.DevicePluginOptions{PreStartRequired: true},
			Refuse: func(call string, ids []string) error { return status.Error(codes.Internal, call+" fails") }})
		pod := asking("u1", 1)
		if err := b.admit(pod); err == nil || !strings.Contains(err.Error(),
			"rpc error: code = Internal desc = Allocate fails") {
			t.Errorf("allocate: %v", err)
		}
		if _, err := b.Allotment(b.Context(), pod, &pod.Spec.Containers[0]); err == nil {
			t.Error("Allotment succeeded without devices")
		}
		if calls := p.Calls(); !slices.Equal(calls, []string{"Allocate d1"}) {
			t.Errorf("calls: %v", calls)
		}
	})
}

func TestPluginHangs(t *testing.T) {
	inBubble(t, func(b *bench) {
		hang := make(chan struct{})
		defer close(hang)
		b.plug(plugin.Config{Devices: plugin.Devices("d1"), Refuse: func(string, []string) error { <-hang; return nil }})
		start := time.Now()
		if err := b.admit(asking("u1", 1)); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("allocate: %v", err)
		}
		if took := time.Since(start); took != allocateTimeout {
			t.Errorf("the call timed out after %v, want %v", took, allocateTimeout)
		}
	})
}

func TestContainerConfig(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, _ := b.plug(
			plugin.Config{Devices: plugin.Devices("d1", "d2"), Mount: "/srv", CDI: "v.io/c=",
				Options: &api.DevicePluginOptions{PreStartRequired: true}})
		pod := asking("u1", 2, 0)
		b.mustAdmit(pod)
		a, err := b.Allotment(b.Context(), pod, &pod.Spec.Containers[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Devices) != 1 || a.Devices[0].HostPath != "/dev/null" || a.Devices[0].ContainerPath != "/dev/testdev" ||
			a.Devices[0].Permissions != "rw" {
			t.Errorf("devices: %v", a.Devices)
		}
		if len(a.Mounts) != 1 || a.Mounts[0].HostPath != "/srv" || a.Mounts[0].ContainerPath != "/testdev" ||
			!a.Mounts[0].Readonly {
			t.Errorf("mounts: %v", a.Mounts)
		}
		if len(a.CDI) != 2 || a.CDI[1].Name != "v.io/c=d2" {
			t.Errorf("CDI: %v", a.CDI)
		}
		if a.Annotations["test.monopod.local/devices"] != "d1,d2" || len(a.Envs) != 1 || a.Envs[0].Value != "d1,d2" {
			t.Errorf("annotations and environment: %v %v", a.Annotations, a.Envs)
		}
		if a, err := b.Allotment(b.Context(), pod, &pod.Spec.Containers[1]); err != nil || len(a.Devices) > 0 {
			t.Errorf("allotment of a container without devices: %v, error %v", a, err)
		}
		if calls := p.Calls(); !slices.Equal(calls, []string{"Allocate d1,d2", "PreStartContainer d1,d2"}) {
			t.Errorf("calls: %v", calls)
		}
	})
}

func TestRestartKeepsDevices(t *testing.T) {
	inBubble(t, func(b *bench) {
		cfg := plugin.Config{Devices: plugin.Devices("d1", "d2", "d3")}
		_, pull := b.plug(cfg)
		one, two := asking("u1", 1), asking("u2", 1)
		b.mustAdmit(one)
		b.mustAdmit(two)
		b.restart()
		pull()
		b.has(0, 0)
		if n := b.Taken()[res]; n != 2 {
			t.Errorf("%d devices allocated after a restart, want 2", n)
		}
		if err := b.Allocate(b.Context(), two, &two.Spec.Containers[0], topology.Hint{}); err != nil {
			t.Errorf("admission after a restart: %v", err)
		}
		var absent *Absent
		if err := b.Prepare(b.Context(), two); !errors.As(err, &absent) || absent.Resource != res {
			t.Errorf("Prepare before the registration of the plugin returned %v", err)
		}
		if got := b.ids(two, "a"); got != "d2" {
			t.Errorf("the container has %q, want d2", got)
		}
		b.Retain(func(uid types.UID) bool { return uid == "u2" })

		p, _ := b.plug(cfg)
		b.has(3, 3)
		b.mustAdmit(two)
		b.mustAdmit(asking("u3", 2))
		if calls := p.Calls(); !slices.Equal(calls, []string{"Allocate d1,d3"}) {
			t.Errorf("calls: %v", calls)
		}
	})
}

func TestDeviceMissingAfterRestart(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, pull := b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2")})
		pod := asking("u1", 1)
		b.mustAdmit(pod)
		b.restart()
		pull()
		b.plug(plugin.Config{Devices: plugin.Devices("d2")})
		if err := b.admit(pod); err == nil || !strings.Contains(err.Error(),
			"previously allocated devices are no longer healthy") {
			t.Errorf("admission returned %v", err)
		}
	})
}

func TestTornCheckpoint(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, pull := b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2")})
		one := asking("u1", 1)
		b.mustAdmit(one)
		made := topologytest.Created(b, b, one)
		b.stop()
		path := filepath.Join(b.dir, "kubelet_internal_checkpoint")
		content, err := os.ReadFile(path)
		if err != nil || os.WriteFile(path, content[:len(content)/2], 0o600) != nil {
			t.Fatal(err)
		}
		b.start()
		if b.Lost() == nil {
			t.Error("Lost returned nil for a damaged checkpoint")
		}
		if half, err := os.ReadFile(path + ".damaged"); err != nil || len(half) != len(content)/2 {
			t.Errorf("no .damaged file with the content: %v", err)
		}
		b.Recover(append(made, topologytest.As("thief", made)...))
		pull()
		b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2")})
		two := asking("u2", 1)
		b.mustAdmit(two)
		b.mustAdmit(one)
		if got := b.ids(one, "a") + " " + b.ids(two, "a"); got != "d1 d2" {
			t.Errorf("the pods have %s, want d1 d2", got)
		}
		b.restart()
		if again := topologytest.Created(b, b, one); !cmp.Equal(again, made) {
			t.Error(cmp.Diff(made, again))
		}
	})
}

// TestImpossibleCheckpoint checks that a checkpoint with two owners of a device counts as damaged.
func TestImpossibleCheckpoint(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.stop()
		var entries []checkpoint.PodDevicesEntry
		for _, uid := range []string{"u1", "u2"} {
			entries = append(entries,
				checkpoint.PodDevicesEntry{PodUID: uid, ContainerName: "a", ResourceName: res,
					DeviceIDs: checkpoint.DevicesPerNUMA{-1: {"d1"}}})
		}
		text, err := checkpoint.Encode(checkpoint.Data{Entries: entries})
		if err != nil || checkpoint.Write(b.dir, text) != nil {
			t.Fatal(err)
		}
		b.start()
		if b.Lost() == nil || len(b.Taken()) > 0 {
			t.Errorf("lost: %v, allocated: %v", b.Lost(), b.Taken())
		}
		if aside, err := os.ReadFile(filepath.Join(b.dir, checkpoint.FileName+".damaged")); err != nil ||
			string(aside) != string(text) {
			t.Errorf("no .damaged file with the content: %v", err)
		}
	})
}

// TestRecoveredPluginDoesNotReturn checks that the manager waits for the plugin of recovered devices only for
// returnGrace.
func TestRecoveredPluginDoesNotReturn(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, pull := b.plug(plugin.Config{Devices: plugin.Devices("d1")})
		one := asking("u1", 1)
		b.mustAdmit(one)
		made := topologytest.Created(b, b, one)
		b.stop()
		if err := os.Remove(filepath.Join(b.dir, "kubelet_internal_checkpoint")); err != nil {
			t.Fatal(err)
		}
		b.start()
		pull()
		b.Recover(made)
		var absent *Absent
		if err := b.admit(one); !errors.As(err, &absent) {
			t.Errorf("admission returned %v, want Absent", err)
		}
		before := len(b.changes())
		time.Sleep(returnGrace + time.Second)
		if len(b.changes()) == before {
			t.Error("no notification after returnGrace")
		}
	})
}

func TestInitContainersPassOnTheirDevices(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2", "d3", "d4"),
			Options: &api.DevicePluginOptions{GetPreferredAllocationAvailable: true},
			Prefer: func(r *api.ContainerPreferredAllocationRequest) []string { // prefers the last devices
				ids := slices.Sorted(slices.Values(r.AvailableDeviceIDs))
				return ids[len(ids)-int(r.AllocationSize):]
			}})
		pod := asking("u1", 1, 1)
		side := wanting("side", 1)
		side.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = []corev1.Container{wanting("first", 1), side, wanting("second", 2)}
		b.mustAdmit(pod)
		got := map[string]string{}
		for _, name := range []string{"first", "side", "second", "a", "b"} {
			got[name] = b.ids(pod, name)
		}
		want := map[string]string{"first": "d4", "side": "d4", "second": "d2,d3", "a": "d2", "b": "d3"}
		if !cmp.Equal(got, want) {
			t.Error(cmp.Diff(want, got))
		}
	})
}

func TestPreference(t *testing.T) {
	inBubble(t, func(b *bench) {
		var answer []string
		p, _ := b.plug(plugin.Config{Options: &api.DevicePluginOptions{GetPreferredAllocationAvailable: true},
			Devices: []*api.Device{plugin.At("n0", 0), plugin.At("n1", 1), plugin.At("m1", 1), plugin.At("x")},
			Prefer:  func(*api.ContainerPreferredAllocationRequest) []string { return answer }})
		for i, c := range []struct {
			near        []int
			answer      []string
			count       int64
			asked, want string
		}{
			{near: []int{1}, answer: []string{"n1"}, count: 1, asked: "m1,n1", want: "n1"},
			{near: []int{1}, answer: []string{"n0"}, count: 1, asked: "m1,n1", want: "m1"}, // n0 is not available
			{near: []int{1}, answer: []string{"x", "n1"}, count: 3, asked: "m1,n0,n1,x", want: "m1,n1,x"},
			{answer: nil, count: 1, asked: "m1,n0,n1,x", want: "m1"},
		} {
			answer = c.answer
			pod := asking(types.UID(rune('0'+i)), c.count)
			b.mustAdmit(pod, c.near...)
			if got := b.ids(pod, "a"); got != c.want {
				t.Errorf("%d: got %s, want %s", i, got, c.want)
			}
			calls := p.Calls()
			asked := strings.Split(strings.TrimPrefix(calls[len(calls)-2], "GetPreferredAllocation "), ",")
			if slices.Sort(asked); strings.Join(asked, ",") != c.asked {
				t.Errorf("%d: available devices %v, want %s", i, asked, c.asked)
			}
			b.Release(pod.UID)
		}
	})
}

func TestHints(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.plug(plugin.Config{Devices: []*api.Device{plugin.At("a0", 0), plugin.At("b1", 1), plugin.At("c1", 1),
			plugin.At("x")}})
		only := topology.NewNodes
		check := func(what string, pod *corev1.Pod, want ...topology.Hint) {
			t.Helper()
			for scope, got := range map[string][]topology.Hint{"container": b.Hints(pod, &pod.Spec.Containers[0])[res],
				"pod": b.PodHints(pod)[res]} {
				if !cmp.Equal(got, want) && len(got)+len(want) > 0 || got == nil {
					t.Errorf("%s: hints of the %s are %v, want %v", what, scope, got, want)
				}
			}
		}
		check("one", asking("u1", 1), topology.Hint{Nodes: only(0), Preferred: true},
			topology.Hint{Nodes: only(1), Preferred: true}, topology.Hint{Nodes: only(0, 1)})
		check("two", asking("u1", 2), topology.Hint{Nodes: only(1), Preferred: true}, topology.Hint{Nodes: only(0, 1)})
		check("five", asking("u1", 5))
		holder := asking("u2", 1)
		b.mustAdmit(holder, 1)
		check("existing allocation", holder, topology.Hint{Nodes: only(1), Preferred: true}, topology.Hint{Nodes: only(0, 1)})
		check("two of the rest", asking("u3", 2), topology.Hint{Nodes: only(0, 1)})
		if h := b.Hints(asking("u4", 0), &corev1.Container{}); len(h) > 0 {
			t.Errorf("hints without a request: %v", h)
		}
	})
}
