package runtime_test

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
)

func TestOf(t *testing.T) {
	t.Parallel()
	all := runtime.Abilities{Images: true, ImageSubPaths: true, CDI: true}
	for _, c := range []struct {
		name, version string
		want          runtime.Abilities
	}{
		{"containerd", "1.6.20~ds1", runtime.Abilities{}},
		{"containerd", "1.7.27", runtime.Abilities{}},
		{"containerd", "v2.0.5", runtime.Abilities{CDI: true}},
		{"containerd", "2.1.6+bottlerocket", runtime.Abilities{Images: true, CDI: true}},
		{"containerd", "v2.2.0-rc.1", all},
		{"containerd", "v2.4.2", all},
		{"containerd", "2.10.0", all},
		{"containerd", "unknown", runtime.Abilities{}},
		{"fake", "1.0.0", all},
	} {
		if got := runtime.AbilitiesOf(&cri.VersionResponse{RuntimeName: c.name, RuntimeVersion: c.version}); got != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.name, c.version, got, c.want)
		}
	}
}
