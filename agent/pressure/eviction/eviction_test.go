package eviction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/pressure/eviction"
)

// pod returns a pod with a priority and a memory request; "": no request.
func pod(name string, priority int32, memory string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	p.Spec.Priority = &priority
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	if memory != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return p
}

func names(pods []*corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestTracker(t *testing.T) {
	t.Parallel()
	policy := eviction.Policy{TransitionPeriod: 5 * time.Minute, Thresholds: []eviction.Threshold{
		{Signal: eviction.Memory, Value: eviction.Value{Quantity: 200}, Soft: true, Grace: 30 * time.Second},
		{Signal: eviction.NodeFs, Value: eviction.Value{Percent: 10}},
		{Signal: eviction.Memory, Value: eviction.Value{Quantity: 100}, Reclaim: eviction.Value{Quantity: 50}},
	}}
	var tracker eviction.Tracker
	start := time.Unix(0, 0)
	for _, step := range []struct {
		at           time.Duration
		memory, disk int64 // available of 1000; negative: unknown
		due          string
		pressure     string
	}{
		{0, 500, 500, "", ""},
		{10 * time.Second, 150, 500, "", "MemoryPressure"}, // soft grace period starts
		{39 * time.Second, 150, 500, "", "MemoryPressure"},
		{40 * time.Second, 150, 500, "memory.available soft", "MemoryPressure"},
		{50 * time.Second, 50, 500, "memory.available,memory.available soft", "MemoryPressure"},
		{60 * time.Second, 149, 500, "memory.available,memory.available soft", "MemoryPressure"}, // below the minimum reclaim
		{70 * time.Second, 150, 500, "memory.available soft", "MemoryPressure"},
		{80 * time.Second, 200, 99, "nodefs.available", "DiskPressure,MemoryPressure"},
		{90 * time.Second, 150, 100, "", "DiskPressure,MemoryPressure"}, // the soft grace period starts again
		{100 * time.Second, 300, -1, "", "DiskPressure,MemoryPressure"},
		{380 * time.Second, 300, 500, "", "MemoryPressure"},
		{390 * time.Second, 300, 500, "", ""},
	} {
		seen := eviction.Observations{eviction.Memory: {Total: 1000, Free: step.memory}}
		if step.disk >= 0 {
			seen[eviction.NodeFs] = eviction.Amount{Total: 1000, Free: step.disk}
		}
		met, pressure := tracker.Update(policy, seen, start.Add(step.at))
		var due, under []string
		for _, m := range met {
			due = append(due, strings.TrimSpace(string(m.Signal)+map[bool]string{true: " soft"}[m.Soft]))
		}
		for _, c := range pressure {
			under = append(under, string(c))
		}
		if strings.Join(due, ",") != step.due || strings.Join(under, ",") != step.pressure {
			t.Errorf("%v: thresholds due %v, pressure %v", step.at, due, under)
		}
	}
}

func TestRank(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{
		pod("within-low", -5, "100"), pod("within", 0, "100"), pod("over-high", 9, "10"),
		pod("over-little", 0, "10"), pod("over-much", 0, "10"), pod("nothing", 0, ""),
	}
	usage := map[types.UID]eviction.Usage{}
	for name, n := range map[types.UID]int64{"within-low": 100, "within": 50, "over-high": 900, "over-little": 20,
		"over-much": 500, "nothing": 100} {
		usage[name] = eviction.Usage{Pod: map[corev1.ResourceName]int64{corev1.ResourceMemory: n, "pids": n}}
	}
	for signal, want := range map[eviction.Signal]string{
		eviction.Memory: "over-much nothing over-little over-high within-low within",
		eviction.PID:    "within-low over-much nothing within over-little over-high",
	} {
		got := slices.Clone(pods)
		if eviction.Rank(got, usage, signal); names(got) != want {
			t.Errorf("%s: %s", signal, names(got))
		}
	}
	got := slices.Clone(pods)
	if eviction.Rank(got, nil, eviction.Memory); names(
		got) != "within-low nothing over-little over-much within over-high" {
		t.Errorf("without usage: %s", names(got)) // by priority, then by request
	}
}

func TestCritical(t *testing.T) {
	t.Parallel()
	annotated := func(namespace string) *corev1.Pod {
		p := pod("p", 0, "")
		p.Namespace, p.Annotations = namespace, map[string]string{"scheduler.alpha.kubernetes.io/critical-pod": ""}
		return p
	}
	mirror := pod("m", 0, "")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	for i, c := range []struct {
		pod  *corev1.Pod
		gate bool
		want bool
	}{
		{pod("p", 0, ""), true, false},
		{pod("p", 1_999_999_999, ""), false, false},
		{pod("p", 2_000_000_000, ""), false, true},
		{mirror, false, true},
		{annotated("kube-system"), false, false},
		{annotated("kube-system"), true, true},
		{annotated("default"), true, false},
	} {
		if got := eviction.Critical(c.pod, c.gate); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	tolerant := pod("t", 0, "")
	tolerant.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeMemoryPressure,
		Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	memory, disk := corev1.NodeMemoryPressure, corev1.NodeDiskPressure
	for i, c := range []struct {
		pod      *corev1.Pod
		critical bool
		pressure []corev1.NodeConditionType
		want     string
	}{
		{pod("p", 0, ""), false, nil, ""},
		{pod("p", 0, ""), false, []corev1.NodeConditionType{memory}, "The node had condition: [MemoryPressure]. "},
		{pod("p", 0, "1Mi"), false, []corev1.NodeConditionType{memory}, ""},
		{tolerant, false, []corev1.NodeConditionType{memory}, ""},
		{pod("p", 0, ""), true, []corev1.NodeConditionType{memory}, ""},
		{pod("p", 0, "1Mi"), false, []corev1.NodeConditionType{disk}, "The node had condition: [DiskPressure]. "},
		{tolerant, false, []corev1.NodeConditionType{disk, memory},
			"The node had condition: [DiskPressure MemoryPressure]. "},
		{pod("p", 0, "1Mi"), true, []corev1.NodeConditionType{disk}, ""},
	} {
		got := ""
		if f := eviction.Admit(c.pod, c.critical, c.pressure); f != nil {
			got = f.Message
		}
		if got != c.want {
			t.Errorf("%d: %q", i, got)
		}
	}
}

func TestExceeded(t *testing.T) {
	t.Parallel()
	p := pod("p", 0, "")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(
			100, resource.BinarySI)}}},
		{
			Name: "m",
			VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{
					Medium:    corev1.StorageMediumMemory,
					SizeLimit: resource.NewQuantity(1, resource.BinarySI),
				},
			},
		},
	}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d"})
	for i, n := range []string{"50", "70"} {
		p.Spec.Containers[i].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(n)}
	}
	if !eviction.Limited(p) || eviction.Limited(pod("p", 0, "1")) {
		t.Error("Limited must be true only for the pod with limits")
	}
	for i, c := range []struct {
		v, c, d int64
		want    string
	}{
		{100, 10, 10, ""},
		{101, 0, 0, `Usage of EmptyDir volume "v" exceeds the limit "100". `},
		{100, 11, 10, "Pod ephemeral local storage usage exceeds the total limit of containers 120. "},
		{0, 51, 10, `Container c exceeded its local ephemeral storage limit "50". `},
		{0, 50, 70, ""},
	} {
		got := ""
		if f := eviction.Exceeded(p,
			eviction.Disk{Volumes: map[string]int64{"v": c.v}, Containers: map[string]int64{"c": c.c, "d": c.d}}); f != nil {
			got = f.Message
		}
		if got != c.want {
			t.Errorf("%d: %q", i, got)
		}
	}
}

func TestVictims(t *testing.T) {
	t.Parallel()
	allocatable := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100"),
		corev1.ResourcePods: resource.MustParse("4")}
	for i, c := range []struct {
		asks       string
		candidates []*corev1.Pod
		more       string // memory requests of other pods
		want       string
	}{
		{"10", []*corev1.Pod{pod("a", 0, "50"), pod("b", 1, "45")}, "0", "a"},
		{"30", []*corev1.Pod{pod("small", 0, "10"), pod("large", 0, "90")}, "0", "large"}, // one victim suffices
		{"100", []*corev1.Pod{pod("a", 0, "50"), pod("b", 1, "45")}, "0", "a b"},
		{"60", []*corev1.Pod{pod("a", 0, "30"), pod("b", 1, "20")}, "50", "false"},
		{"", []*corev1.Pod{pod("b", 1, "1"), pod("a", 0, "1"), pod("c", 2, ""), pod("d", 2, "")}, "0", "a"}, // too many pods
	} {
		used := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(c.more)}
		for _, p := range c.candidates {
			for name, q := range eviction.Requests(p) {
				sum := used[name]
				sum.Add(q)
				used[name] = sum
			}
		}
		got, ok := eviction.Victims(pod("new", 2_000_000_000, c.asks), c.candidates, used, allocatable)
		text := names(got)
		if !ok {
			text = fmt.Sprint(ok)
		}
		if text != c.want {
			t.Errorf("%d: %s", i, text)
		}
	}
}
