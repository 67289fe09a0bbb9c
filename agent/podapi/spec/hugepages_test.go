package spec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/podapi/spec"
)

func TestPageName(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]string{64 << 10: "64KB", 2 << 20: "2MB", 32 << 20: "32MB", 1 << 30: "1GB",
		16 << 30: "16GB"} {
		if got := spec.PageName(size); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}

func TestHugePagesWithoutRequestAreLimitedToZero(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{}
	c.Resources.Limits = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("6Mi"),
		"hugepages-64Ki": resource.MustParse("1Mi")}
	got := spec.HugePages(c, []int64{2 << 20, 1 << 30})
	if len(got) != 2 || got[0].PageSize != "2MB" || got[0].Limit != 6<<20 || got[1].PageSize != "1GB" ||
		got[1].Limit != 0 {
		t.Errorf("limits of huge pages: %v", got)
	}
}
