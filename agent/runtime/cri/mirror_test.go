package cri_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/runtimetest/registrytest"
)

// The runtime pulls images of an unreachable registry from the mirror in a hosts.toml below
// <data-dir>/containerd/certs.d, without a restart, and with the password of the registry.
func TestMirror(t *testing.T) {
	n := startNode(t)
	mirror := registrytest.New()
	t.Cleanup(mirror.Close)
	if _, _, err := mirror.Push("team/app:1", []byte("mirrored")); err != nil {
		t.Fatal(err)
	}
	mirror.Require("me", "secret")
	const name = "127.0.0.1:1/team/app:1"
	auth := &api.AuthConfig{Username: "me", Password: "secret"}
	if _, err := n.runtime.PullImage(t.Context(), name, auth, nil); err == nil {
		t.Fatal("the pull from an unreachable registry succeeded")
	}
	dir := filepath.Join(n.dataDir, "containerd", "certs.d", "127.0.0.1:1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	hosts := fmt.Sprintf(
		"server = \"http://127.0.0.1:1\"\n[host.\"http://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", mirror.Host)
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := n.runtime.PullImage(t.Context(), name, auth, nil); err != nil {
		t.Fatal(err)
	}
	img, err := n.runtime.ImageStatus(t.Context(), name)
	if err != nil || !slices.Contains(img.GetRepoTags(), name) {
		t.Errorf("image %v, error %v", img, err)
	}
	if len(mirror.Asked()) == 0 || !strings.Contains(mirror.Asked()[0], "/v2/team/app/blobs/") {
		t.Errorf("the mirror got the requests %v", mirror.Asked())
	}
}
