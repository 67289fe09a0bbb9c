package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/agent/host"
)

// TestNeeds checks that errors name missing requirements and their remedies, and that WriteHosts writes /etc/hosts
// once.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for version, file := range map[string]string{"2": "sys/fs/cgroup/cgroup.controllers",
		"1": "sys/fs/cgroup/memory/cgroup.procs"} {
		root := t.TempDir()
		for _, dir := range []string{"etc", filepath.Dir(file)} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := host.Needs(root, true); err == nil || !strings.Contains(err.Error(), "mount -t cgroup2") ||
			!strings.Contains(err.Error(), "> /etc/hosts") {
			t.Errorf("a machine without cgroups and /etc/hosts: %v", err)
		}
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := host.Needs(root, true); err == nil || strings.Contains(err.Error(), "cgroup2") {
			t.Errorf("cgroups of version %s: %v", version, err)
		}
		for _, want := range []bool{true, false} {
			if written, err := host.WriteHosts(root); written != want || err != nil {
				t.Errorf("WriteHosts: written %v, error %v", written, err)
			}
		}
		if err := host.Needs(root, true); err != nil {
			t.Error(err)
		}
	}
	if _, err := host.WriteHosts(t.TempDir()); err == nil {
		t.Error("WriteHosts succeeded without the folder /etc")
	}
}
