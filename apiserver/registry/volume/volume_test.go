package volume_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/volume"
)

func TestPullPolicy(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]corev1.PullPolicy{
		"nginx": "Always", "nginx:latest": "Always", "nginx:1": "IfNotPresent", "host:5000/nginx": "Always",
		"host:5000/nginx:1": "IfNotPresent", "nginx@sha256:abc": "IfNotPresent", "nginx:latest@sha256:abc": "IfNotPresent",
	} {
		if got := volume.PullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
