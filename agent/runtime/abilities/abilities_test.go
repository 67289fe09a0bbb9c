package abilities_test

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/abilities"
)

func TestOf(t *testing.T) {
	t.Parallel()
	all := abilities.Abilities{Images: true, ImageSubPaths: true, CDI: true}
	for _, c := range []struct {
		name, version string
		want          abilities.Abilities
	}{
		{"containerd", "1.6.20~ds1", abilities.Abilities{}},
		{"containerd", "1.7.27", abilities.Abilities{}},
		{"containerd", "v2.0.5", abilities.Abilities{CDI: true}},
		{"containerd", "2.1.6+bottlerocket", abilities.Abilities{Images: true, CDI: true}},
		{"containerd", "v2.2.0-rc.1", all},
		{"containerd", "v2.4.2", all},
		{"containerd", "2.10.0", all},
		{"containerd", "unknown", abilities.Abilities{}},
		{"fake", "1.0.0", all},
	} {
		if got := abilities.Of(&cri.VersionResponse{RuntimeName: c.name, RuntimeVersion: c.version}); got != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.name, c.version, got, c.want)
		}
	}
}
