package amount_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/podapi/amount"
)

// of returns a list of cpu and memory, without the empty ones.
func of(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			out[name] = resource.MustParse(text)
		}
	}
	return out
}

func TestLists(t *testing.T) {
	t.Parallel()
	sum := of("1", "")
	amount.Add(sum, of("500m", "1Gi"))
	for name, c := range map[string]struct{ got, want corev1.ResourceList }{
		"sum":    {sum, of("1500m", "1Gi")},
		"joined": {amount.Joined(of("1", "1Gi"), of("2", "")), of("2", "1Gi")},
		"larger": {amount.Larger(of("1", "1Gi"), of("2", "")), of("2", "")},
		"first":  {amount.Larger(of("3", "1Gi"), of("2", "2Gi")), of("3", "2Gi")},
	} {
		if !apiequality.Semantic.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{{"1", "1000m", true}, {"1", "2", false}, {"0", "", false}, {"", "", true}} {
		if got := amount.Same(of(c.a, ""), of(c.b, ""), corev1.ResourceCPU); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}
