package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

// world compares a running scheduler with a model that has no caches, queues and hints: at rest, every bound pod fits
// on its node together with the other pods, and no pending pod fits on any node.
type world struct {
	*apitest.API
	t     *testing.T
	rand  *rand.Rand
	names int
	log   []string
}

// fitsBy is the model: it reports whether a pod fits on a node together with the other pods on it.
func fitsBy(p *corev1.Pod, n *corev1.Node, others []*corev1.Pod) bool {
	cpu, count := int64(0), 0
	for _, o := range others {
		if o.Spec.NodeName != n.Name || podstate.Finished(o) {
			continue
		}
		count++
		cpu += o.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		for _, a := range o.Spec.Containers[0].Ports {
			for _, b := range p.Spec.Containers[0].Ports {
				if a.HostPort == b.HostPort {
					return false
				}
			}
		}
	}
	if n.Spec.Unschedulable ||
		cpu+p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() > n.Status.Allocatable.Cpu().MilliValue() ||
		int64(count) >= n.Status.Allocatable.Pods().Value() {
		return false
	}
	for k, v := range p.Spec.NodeSelector {
		if n.Labels[k] != v {
			return false
		}
	}
	return true
}

// repelled reports whether the anti-affinity of a pod, or of the pods in the node's domain, excludes the pod.
func repelled(p *corev1.Pod, n *corev1.Node, others []*corev1.Pod, disks map[string]string) bool {
	for _, o := range others {
		disk, placed := disks[o.Spec.NodeName]
		if !placed || podstate.Finished(o) || disk != n.Labels["disk"] || o.Labels["app"] != p.Labels["app"] {
			continue
		}
		if p.Spec.Affinity != nil || o.Spec.Affinity != nil {
			return true
		}
	}
	return false
}

func (w *world) did(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) step() {
	pods, nodes := apitest.List[*corev1.Pod](w.API, "default"), apitest.List[*corev1.Node](w.API, "")
	switch w.rand.IntN(10) {
	case 0:
		if len(nodes) < 4 {
			w.names++
			n := apitest.Node(fmt.Sprint("n", w.names))
			n.Labels = map[string]string{"disk": fmt.Sprint("d", w.rand.IntN(2)), "kind": fmt.Sprint("k", w.rand.IntN(4))}
			w.Create(n)
			w.Ready(n.Name, corev1.ConditionTrue)
			w.did("node %s %v", n.Name, n.Labels)
		}
	case 1:
		if len(nodes) > 0 {
			n := nodes[w.rand.IntN(len(nodes))]
			apitest.Change(w.API, n, "", func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
			w.did("cordon %s %t", n.Name, !n.Spec.Unschedulable)
		}
	case 2:
		if len(nodes) > 0 {
			n := nodes[w.rand.IntN(len(nodes))]
			kind := fmt.Sprint("k", w.rand.IntN(4))
			apitest.Change(w.API, n, "", func(n *corev1.Node) { n.Labels["kind"] = kind })
			w.did("label %s %s", n.Name, kind)
		}
	case 3:
		if len(nodes) > 0 {
			n, cpu := nodes[w.rand.IntN(len(nodes))], *resource.NewQuantity(int64(2+w.rand.IntN(4)), resource.DecimalSI)
			apitest.Change(w.API, n, "status", func(n *corev1.Node) { n.Status.Allocatable["cpu"] = cpu })
			w.did("size %s %s", n.Name, cpu.String())
		}
	case 4, 5:
		if len(pods) > 0 {
			p := pods[w.rand.IntN(len(pods))]
			if _, err := w.Client.Delete(w.t.Context(), refOf(p.Name),
				metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
				w.t.Fatal(err)
			}
			w.did("delete %s", p.Name)
		}
	case 6:
		if len(pods) > 0 {
			if p := pods[w.rand.IntN(len(pods))]; p.Spec.NodeName != "" {
				w.Phase(p, corev1.PodSucceeded, false)
				w.did("end %s", p.Name)
			}
		}
	default:
		w.names++
		p := apitest.Pod("default", fmt.Sprint("p", w.names), wants("cpu", fmt.Sprint(1+w.rand.IntN(2))))
		p.Labels = map[string]string{"app": fmt.Sprint("a", w.rand.IntN(3))}
		switch w.rand.IntN(4) {
		case 0:
			p.Spec.NodeSelector = map[string]string{"kind": fmt.Sprint("k", w.rand.IntN(4))}
		case 1:
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: int32(8000 + w.rand.IntN(2))}}
		case 2:
			apart(p.Labels["app"])(p)
		}
		w.Create(p)
		w.did("pod %s %v %v", p.Name, p.Labels, p.Spec.NodeSelector)
	}
}

func (w *world) check() {
	pods, nodes := apitest.List[*corev1.Pod](w.API, "default"), apitest.List[*corev1.Node](w.API, "")
	disks := map[string]string{}
	for _, n := range nodes {
		disks[n.Name] = n.Labels["disk"]
	}
	for i, p := range pods {
		if p.Spec.NodeName != "" || podstate.Finished(p) {
			continue
		}
		others := append(append([]*corev1.Pod{}, pods[:i]...), pods[i+1:]...)
		for _, n := range nodes {
			if fitsBy(p, n, others) && !repelled(p, n, others, disks) {
				w.t.Fatalf("%s is pending and fits on %s: %q\n%v", p.Name, n.Name, whyNot(w.API, p.Name), w.log)
			}
		}
	}
}

// bound checks that each pod that was bound since before fits on its node together with the other pods.
func (w *world) bound(before []*corev1.Pod) {
	nodes := map[string]*corev1.Node{}
	disks := map[string]string{}
	for _, n := range apitest.List[*corev1.Node](w.API, "") {
		nodes[n.Name], disks[n.Name] = n, n.Labels["disk"]
	}
	had := map[string]string{}
	for _, p := range before {
		had[p.Name] = p.Spec.NodeName
	}
	pods := apitest.List[*corev1.Pod](w.API, "default")
	for i, p := range pods {
		if p.Spec.NodeName == "" || had[p.Name] != "" || podstate.Finished(p) {
			continue
		}
		others := append(append([]*corev1.Pod{}, pods[:i]...), pods[i+1:]...)
		if n := nodes[p.Spec.NodeName]; !fitsBy(p, n, others) || repelled(p, n, others, disks) {
			w.t.Fatalf("%s was bound to %s, which does not fit\n%v", p.Name, n.Name, w.log)
		}
	}
}

func TestRandomSequences(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			within(t, func(t *testing.T, api *apitest.API) {
				w := &world{API: api, t: t, rand: rand.New(rand.NewPCG(seed, 14))}
				for range 120 {
					before := apitest.List[*corev1.Pod](api, "default")
					w.step()
					synctest.Wait()
					w.bound(before)
					w.check()
					if w.rand.IntN(4) == 0 {
						apitest.Settle(time.Duration(w.rand.IntN(20)) * time.Second)
					}
				}
			})
		})
	}
}

func TestIdleWithoutPendingPods(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "n")
		api.Create(apitest.Pod("default", "p"))
		synctest.Wait()
		before, worked := api.Store.Revision(), reconciles(api)
		// Heartbeats of the node and status changes of pods.
		for range 20 {
			api.Ready("n", corev1.ConditionTrue)
			api.Phase(apitest.Pod("default", "p"), corev1.PodRunning, true)
			apitest.Settle(time.Minute)
		}
		apitest.Settle(24 * time.Hour)
		if worked == 0 {
			t.Error("the metric counted no reconciles")
		}
		if n := reconciles(api) - worked; n != 0 {
			t.Errorf("%d reconciles", n)
		}
		if writes := api.Store.Revision() - before; writes > 40 {
			t.Errorf("%d writes, want the 40 of the test", writes)
		}
	})
}

func TestHeartbeatsWakeNoPendingPod(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "n")
		api.Create(apitest.Pod("default", "runs"), apitest.Pod("default", "large", wants("cpu", "40")))
		synctest.Wait()
		worked := reconciles(api)
		for range 20 {
			api.Ready("n", corev1.ConditionTrue)
			api.Phase(apitest.Pod("default", "runs"), corev1.PodRunning, true)
			apitest.Settle(10 * time.Second)
		}
		if n := reconciles(api) - worked; n != 0 {
			t.Errorf("%d reconciles", n)
		}
		apitest.Settle(100 * time.Second)
		if n := reconciles(api) - worked; n != 1 {
			t.Errorf("%d reconciles after 5 minutes, want one", n)
		}
	})
}

// reconciles returns the number of reconciles of the scheduler, from the metric.
func reconciles(api *apitest.API) int {
	families, err := api.Registry.Gather()
	if err != nil {
		api.T.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "workqueue_work_duration_seconds" {
			return int(f.Metric[0].Histogram.GetSampleCount())
		}
	}
	api.T.Fatal("no metric workqueue_work_duration_seconds")
	return 0
}
