package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent"
	"monopod/agent/pressure/eviction"
	"monopod/apiserver/kit/client"
)

// signals are eviction signals above all thresholds, except for those that the test lowers.
func (w *world) signals() eviction.Observations {
	out := eviction.Observations{}
	for _, s := range eviction.Signals() {
		out[s] = eviction.Amount{Total: 1000, Free: 1000}
	}
	if scarce := w.scarce.Load(); scarce != nil {
		for s, amount := range *scarce {
			out[s] = amount
		}
	}
	return out
}

// lack sets the available amount of one signal, whose capacity is 1000.
func (w *world) lack(s eviction.Signal, free int64) {
	w.scarce.Store(&eviction.Observations{s: {Total: 1000, Free: free}})
}

func (w *world) stats(a *cri.ContainerAttributes) *cri.ContainerStats {
	s := &cri.ContainerStats{Attributes: a, Cpu: &cri.CpuUsage{UsageCoreNanoSeconds: &cri.UInt64Value{}}}
	if using := w.using.Load(); using != nil {
		s.Memory = &cri.MemoryUsage{WorkingSetBytes: &cri.UInt64Value{Value: (*using)[a.Labels["io.kubernetes.pod.name"]]}}
	}
	return s
}

// evicting starts the agent with thresholds of 10 %.
func (w *world) evicting(more ...eviction.Threshold) {
	w.Helper()
	w.restart(func(c *agent.Config) {
		c.Eviction = eviction.Policy{TransitionPeriod: 5 * time.Minute, MaxGrace: 7 * time.Second, Thresholds: more}
		for _, s := range eviction.Signals() {
			c.Eviction.Thresholds = append(c.Eviction.Thresholds,
				eviction.Threshold{Signal: s, Value: eviction.Value{Percent: 10}})
		}
	})
}

func evicted(p *corev1.Pod) bool {
	return p != nil && p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted"
}

func (w *world) pressed(t corev1.NodeConditionType) bool {
	w.Helper()
	node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
	if err != nil {
		w.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	w.Fatalf("no condition %s", t)
	return false
}

func critical(name string) *corev1.Pod {
	p := pod(name)
	p.Spec.PriorityClassName = "system-cluster-critical"
	return p
}

func TestPodsAreEvictedOneByOneForMemory(t *testing.T) {
	inWorld(t, func(w *world) {
		w.evicting()
		for _, p := range []*corev1.Pod{pod("little"), pod("much"), critical("crit")} {
			w.create(p)
			w.until(time.Second, p.Name, ready)
		}
		w.using.Store(&map[string]uint64{"little": 1 << 20, "much": 50 << 20, "crit": 1 << 30})
		w.lack(eviction.Memory, 99)
		took := w.until(11*time.Second, "much", evicted)
		if took < 500*time.Millisecond && !ready(w.get("little")) {
			t.Errorf("a second pod was evicted within %v", took)
		}
		p := w.get("much")
		if want := "The node was low on resource: memory. Threshold quantity: 100, " +
			"available: 99. Container c was using 50Mi, request is 0, has larger consumption of memory. "; p.Status.Message != want {
			t.Errorf("message %q", p.Status.Message)
		}
		c := findPodCondition(p, corev1.DisruptionTarget)
		if c == nil || c.Status != corev1.ConditionTrue || c.Reason != "TerminationByKubelet" {
			t.Errorf("condition %+v", c)
		}
		if !w.hasEvent("Warning much Evicted: The node was low on resource: memory.") ||
			!w.pressed(corev1.NodeMemoryPressure) {
			t.Errorf("events: %v", w.recorded())
		}
		w.until(20*time.Second, "little", evicted)
		w.after(time.Minute)
		if !ready(w.get("crit")) {
			t.Errorf("the critical pod was evicted: %+v", w.get("crit").Status)
		}
		w.lack(eviction.Memory, 100)
		w.after(4 * time.Minute)
		if !w.pressed(corev1.NodeMemoryPressure) {
			t.Error("MemoryPressure ended before the transition period")
		}
		w.after(2 * time.Minute)
		if w.pressed(corev1.NodeMemoryPressure) {
			t.Error("MemoryPressure remains after the transition period")
		}
	})
}

func TestMemoryPressureNotificationTriggersCheck(t *testing.T) {
	inWorld(t, func(w *world) {
		notice := make(chan struct{})
		w.notice = func(ctx context.Context, short func()) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-notice:
					short()
				}
			}
		}
		w.evicting()
		w.create(pod("a"))
		w.until(time.Second, "a", ready)
		w.lack(eviction.Memory, 10)
		notice <- struct{}{}
		w.until(100*time.Millisecond, "a", evicted)
	})
}

func TestMemoryThresholdTriggersCheck(t *testing.T) {
	inWorld(t, func(w *world) {
		var passed func()
		var left <-chan int64
		w.alter = func(d *agent.Deps) {
			d.WatchUsage = func(ctx context.Context, l <-chan int64, p func()) error {
				left, passed = l, p
				<-ctx.Done()
				return nil
			}
		}
		w.evicting()
		w.create(pod("a"))
		w.until(time.Second, "a", ready)
		if got := <-left; got <= 0 {
			t.Errorf("the watch starts with %d bytes left, want more than 0", got)
		}
		w.lack(eviction.Memory, 10)
		passed()
		w.until(100*time.Millisecond, "a", evicted)
		if got := <-left; got != 0 {
			t.Errorf("after the notification, the watch gets %d bytes left, want 0", got)
		}
	})
}

func TestSoftThresholdsGiveGrace(t *testing.T) {
	inWorld(t, func(w *world) {
		w.evicting(eviction.Threshold{Signal: eviction.Memory, Value: eviction.Value{Percent: 50}, Soft: true,
			Grace: time.Minute})
		w.create(pod("stubborn", "-ignore-term"))
		w.until(time.Second, "stubborn", ready)
		w.lack(eviction.Memory, 400)
		w.after(59 * time.Second)
		if !ready(w.get("stubborn")) {
			t.Errorf("evicted before the end of the grace period: %+v", w.get("stubborn").Status)
		}
		w.until(22*time.Second, "stubborn", evicted)
	})
}

func TestDiskIsReclaimedBeforeEviction(t *testing.T) {
	inWorld(t, func(w *world) {
		w.evicting()
		done := pod("done", "exit", "0")
		done.Spec.RestartPolicy = corev1.RestartPolicyNever
		w.create(done)
		w.create(pod("up"))
		w.until(time.Second, "done", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		w.until(time.Second, "up", ready)
		w.lack(eviction.NodeFs, 50)
		w.failing(func(op, _ string) error {
			if op == "RemoveContainer" || op == "RemovePodSandbox" {
				w.lack(eviction.NodeFs, 500) // the reclaim freed enough
			}
			return nil
		})
		w.after(time.Minute)
		if len(w.containers()) != 1 || !ready(w.get("up")) || !w.pressed(corev1.NodeDiskPressure) {
			t.Errorf("%v %+v", w.containers(), w.get("up").Status)
		}
		w.lack(eviction.NodeFs, 50)
		w.until(11*time.Second, "up", evicted)
		if m := w.get("up").Status.Message; !strings.HasPrefix(m,
			"The node was low on resource: ephemeral-storage. Threshold quantity: 100, available: 50. ") {
			t.Errorf("message %q", m)
		}
	})
}

func TestAdmissionUnderPressure(t *testing.T) {
	inWorld(t, func(w *world) {
		w.evicting()
		w.create(pod("before"))
		w.until(time.Second, "before", ready)
		w.stop()
		w.lack(eviction.Memory, 99)
		w.restart(func(c *agent.Config) { // long under pressure before a pod is evicted
			c.Eviction = eviction.Policy{TransitionPeriod: 5 * time.Minute, Thresholds: []eviction.Threshold{
				{Signal: eviction.Memory, Value: eviction.Value{Percent: 10}, Soft: true, Grace: time.Hour},
				{Signal: eviction.NodeFs, Value: eviction.Value{Percent: 10}},
			}}
		})
		burst := pod("burst")
		burst.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
		for _, p := range []*corev1.Pod{pod("best"), burst, critical("crit")} {
			w.create(p)
		}
		w.until(time.Second, "best", evicted)
		if m := w.get("best").Status.Message; m != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Errorf("message %q", m)
		}
		w.until(time.Second, "burst", ready)
		w.until(time.Second, "crit", ready)
		if !ready(w.get("before")) {
			t.Errorf("a pod that ran before the pressure: %+v", w.get("before").Status)
		}
		w.lack(eviction.NodeFs, 0)
		w.after(15 * time.Second)
		late := burst.DeepCopy()
		late.Name, late.UID, late.ResourceVersion = "late", "", ""
		late.Status = corev1.PodStatus{}
		w.create(late)
		w.until(time.Second, "late", evicted)
	})
}

func TestEmptyDirOverSizeLimitIsEvicted(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("full")
		p.Spec.Volumes = []corev1.Volume{{Name: "v",
			VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)},
			}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		w.create(p)
		w.until(time.Second, "full", ready)
		w.after(time.Minute)
		file := filepath.Join(w.dir, "pods", string(w.get("full").UID), "volumes/kubernetes.io~empty-dir/v/big")
		if err := os.WriteFile(file, make([]byte, 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		w.until(31*time.Second, "full", evicted)
		if m := w.get("full").Status.Message; m != `Usage of EmptyDir volume "v" exceeds the limit "1Mi". ` {
			t.Errorf("message %q", m)
		}
		w.delete("full", 0)
		w.until(time.Second, "full", gone)
		w.nothingLeft()
	})
}

func TestCriticalPodPreempts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.restart(func(c *agent.Config) { c.MaxPods = 2 })
		low, high := pod("low", "-stop-after", "3s", "serve"), pod("high")
		w.create(&schedulingv1.PriorityClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"},
			ObjectMeta: metav1.ObjectMeta{Name: "seven"}, Value: 7})
		high.Spec.PriorityClassName = "seven"
		w.create(low)
		w.create(high)
		w.until(time.Second, "low", ready)
		w.until(time.Second, "high", ready)
		w.create(pod("plain"))
		w.until(time.Second, "plain", func(p *corev1.Pod) bool { return p.Status.Reason == "OutOfpods" })
		w.create(critical("crit"))
		w.after(2 * time.Second)
		if ready(w.get("crit")) {
			t.Error("crit does not wait for low, which takes 3 s to terminate")
		}
		w.until(2*time.Second, "crit", ready)
		w.until(time.Second, "low", func(p *corev1.Pod) bool {
			return p.Status.Reason == "Preempting" && p.Status.Message == "Preempted in order to admit critical pod" &&
				conditionTrue(p, corev1.DisruptionTarget)
		})
		if !ready(w.get("high")) {
			t.Errorf("high: %+v", w.get("high").Status)
		}
	})
}

func findPodCondition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}
