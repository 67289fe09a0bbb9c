package pod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/kind/kindtest"
)

// updatePod does the steps of an update of the spec to a copy of old.
func updatePod(t *testing.T, old *corev1.Pod, change func(*corev1.Pod)) (*corev1.Pod, []string) {
	t.Helper()
	next := old.DeepCopy()
	change(next)
	podPrepare(next, old, "")
	podDefault(next)
	return next, strings.Split(kindtest.Lines(podValidate(next, old, "")), "\n")
}

func TestPodSpecUpdate(t *testing.T) {
	t.Parallel()
	plain, gated := "{activeDeadlineSeconds: 10, containers: [{name: a, image: b}]}",
		"{schedulingGates: [{name: x/y}], nodeSelector: {a: b}, containers: [{name: a, image: b}]}"
	for name, c := range map[string]struct {
		old    string
		change func(*corev1.PodSpec)
		want   string
	}{
		"image": {plain, func(s *corev1.PodSpec) { s.Containers[0].Image = "c" }, ""},
		"image removed": {plain, func(s *corev1.PodSpec) { s.Containers[0].Image = "" },
			"spec.containers[0].image: Required value"},
		"command":      {plain, func(s *corev1.PodSpec) { s.Containers[0].Command = []string{"x"} }, "spec: Forbidden"},
		"host network": {plain, func(s *corev1.PodSpec) { s.HostNetwork = true }, "spec: Forbidden"},
		"node":         {plain, func(s *corev1.PodSpec) { s.NodeName = "n" }, "spec: Forbidden"},
		"container added": {plain, func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "c",
				Image: "d"})
		}, "spec.containers: Forbidden"},
		"deadline decreased": {plain, func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(5)) }, ""},
		"deadline increased": {plain, func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(50)) },
			"spec.activeDeadlineSeconds: Invalid value"},
		"deadline removed": {plain, func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = nil },
			"spec.activeDeadlineSeconds: Invalid value"},
		"toleration added": {plain, func(s *corev1.PodSpec) {
			s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: "k", Operator: "Exists"})
		}, ""},
		"toleration changed": {"{tolerations: [{key: k, operator: Exists}], containers: [{name: a, image: b}]}",
			func(s *corev1.PodSpec) { s.Tolerations[0].Key = "l" }, "spec.tolerations: Forbidden"},
		"gate removed": {gated, func(s *corev1.PodSpec) { s.SchedulingGates = nil }, ""},
		"gate added": {plain,
			func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x/z"}} },
			"spec.schedulingGates[0].name: Forbidden"},
		"selector narrowed": {gated, func(s *corev1.PodSpec) { s.NodeSelector["c"] = "d" }, ""},
		"selector widened": {gated, func(s *corev1.PodSpec) { delete(s.NodeSelector, "a") },
			"spec.nodeSelector: Invalid value"},
		"selector, not gated": {plain, func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"c": "d"} },
			"spec: Forbidden"},
		"affinity while gated": {gated, func(s *corev1.PodSpec) { s.Affinity = affinityTo("n1") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got := updatePod(t, parsePod(t, c.old), func(p *corev1.Pod) { c.change(&p.Spec) })
			if lines := strings.Join(got, "\n"); lines != c.want {
				t.Errorf("got %q, want %q", lines, c.want)
			}
		})
	}
}

func affinityTo(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name",
			Operator: "In", Values: []string{node}}}}},
	}}}
}

func TestPodUpdateMessageNamesTheFields(t *testing.T) {
	t.Parallel()
	old := parsePod(t, "containers: [{name: a, image: b}]")
	next := old.DeepCopy()
	next.Spec.HostPID, next.Spec.Hostname = true, "x"
	errs := podValidate(next, old, "")
	if len(errs) != 1 || !strings.Contains(errs[0].Detail,
		"pod updates may not change fields other than `spec.containers[*].image`") ||
		!strings.HasSuffix(errs[0].Detail, "changed: hostPID, hostname") {
		t.Errorf("got %v", errs)
	}
}

func TestPodGeneration(t *testing.T) {
	t.Parallel()
	old := parsePod(t, "containers: [{name: a, image: b}]")
	if old.Generation != 1 {
		t.Fatalf("a new pod is at generation %d, want 1", old.Generation)
	}
	relabelled, _ := updatePod(t, old,
		func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"}; p.Spec.DNSPolicy = "" })
	if relabelled.Generation != 1 {
		t.Errorf("an update of labels without the defaults changed the generation to %d", relabelled.Generation)
	}
	changed, _ := updatePod(t, old, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "c"; p.Status.Phase = "Running" })
	if changed.Generation != 2 || changed.Status.Phase != corev1.PodPending {
		t.Errorf("generation %d, phase %s; want 2 and the old phase", changed.Generation, changed.Status.Phase)
	}
}

func TestPodStatusWrite(t *testing.T) {
	t.Parallel()
	old := parsePod(t, "{restartPolicy: Never, containers: [{name: a, image: b}]}")
	old.Status.ObservedGeneration = 1
	old.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	next := old.DeepCopy()
	next.Spec.NodeName, next.Labels = "elsewhere", map[string]string{"seen": "yes"}
	next.Status = corev1.PodStatus{Phase: corev1.PodFailed, PodIPs: []corev1.PodIP{{IP: "no"}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "a",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	podPrepare(next, old, "status")
	if next.Spec.NodeName != "" || next.Labels["seen"] != "yes" || next.Status.QOSClass != corev1.PodQOSBestEffort ||
		next.Status.ObservedGeneration != 1 {
		t.Errorf("got node %q, labels %v, status %+v", next.Spec.NodeName, next.Labels, next.Status)
	}
	kindtest.WantErrors(t, podValidate(next, old, "status"), "status.podIPs[0]: Invalid value",
		"status.containerStatuses[0].state: Forbidden")
	next.Status.PodIPs, next.Status.ContainerStatuses, next.Status.QOSClass = nil, nil, corev1.PodQOSGuaranteed
	kindtest.WantErrors(t, podValidate(next, old, "status"), "status.qosClass: Invalid value")
}

func TestMirrorAnnotationUpdate(t *testing.T) {
	t.Parallel()
	const key = corev1.MirrorPodAnnotationKey
	path := "metadata.annotations[" + key + "]: Forbidden"
	for name, c := range map[string]struct {
		old, next map[string]string
		want      string
	}{
		"none":    {nil, map[string]string{"a": "b"}, ""},
		"kept":    {map[string]string{key: "x"}, map[string]string{key: "x", "a": "b"}, ""},
		"added":   {nil, map[string]string{key: "x"}, path},
		"changed": {map[string]string{key: "x"}, map[string]string{key: "y"}, path},
		"removed": {map[string]string{key: "x"}, nil, path},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := parsePod(t, "{nodeName: n, containers: [{name: a, image: b}]}")
			old.Annotations = c.old
			_, got := updatePod(t, old, func(p *corev1.Pod) { p.Annotations = c.next })
			if lines := strings.Join(got, "\n"); lines != c.want {
				t.Errorf("got %q, want %q", lines, c.want)
			}
		})
	}
}
