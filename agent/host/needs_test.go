package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/agent/host"
)

// TestNeeds: errors name what is missing and how to fix it, and /etc/hosts is written once.
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
			t.Errorf("a machine without both: %v", err)
		}
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := host.Needs(root, true); err == nil || strings.Contains(err.Error(), "cgroup2") {
			t.Errorf("cgroups of version %s: %v", version, err)
		}
		for _, want := range []bool{true, false} {
			if written, err := host.WriteHosts(root); written != want || err != nil {
				t.Errorf("written %v, %v", written, err)
			}
		}
		if err := host.Needs(root, true); err != nil {
			t.Error(err)
		}
	}
	if _, err := host.WriteHosts(t.TempDir()); err == nil {
		t.Error("a file was written into a folder that does not exist")
	}
}
