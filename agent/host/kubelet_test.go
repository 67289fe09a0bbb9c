package host_test

import (
	"testing"

	"monopod/agent/host"
)

func TestKubeletPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/var/lib/kubelet":            "/data",
		"/var/lib/kubelet/plugins/a":  "/data/plugins/a",
		"/var/lib/kubelet2/plugins/a": "/var/lib/kubelet2/plugins/a",
		"/data/plugins/a":             "/data/plugins/a",
		"/":                           "/",
	} {
		if got := host.KubeletPath(path, "/data"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
