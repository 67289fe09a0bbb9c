package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMergeLabelKeys(t *testing.T) {
	t.Parallel()
	selector := func() *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}} }
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x", "rev": "1", "tenant": "t"}}}
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		{LabelSelector: selector(), MatchLabelKeys: []string{"rev", "absent"}}, {MatchLabelKeys: []string{"rev"}}}
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
		{PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: selector(), MatchLabelKeys: []string{"rev"},
			MismatchLabelKeys: []string{"tenant"}}}}}}
	mergeLabelKeys(pod)
	for _, c := range []struct {
		of   *metav1.LabelSelector
		want string
	}{
		{pod.Spec.TopologySpreadConstraints[0].LabelSelector, "app=x,rev in (1)"},
		{pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector,
			"app=x,rev in (1),tenant notin (t)"},
	} {
		if got := metav1.FormatLabelSelector(c.of); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := pod.Spec.TopologySpreadConstraints[1].LabelSelector; got != nil {
		t.Errorf("a selector that selects nothing became %v", got)
	}
}
