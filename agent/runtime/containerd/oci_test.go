package containerd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestChooseOCIRuntime(t *testing.T) {
	t.Parallel()
	pure, hybrid, mixed := t.TempDir(), tree(t, ""), tree(t, "hugetlb misc\n")
	for _, tt := range []struct {
		name, want string
		installed  map[string]string // output of --version by program
		cgroups    string
		chosen     string
	}{
		{"crun is preferred", Auto, map[string]string{"runc": "", "crun": "crun version 1.8.1"}, pure,
			"[{crun /b/crun} {runc /b/runc}]"},
		{"no flag", "", map[string]string{"runc": "", "crun": "crun version 1.20"}, hybrid,
			"[{crun /b/crun} {runc /b/runc}]"},
		{"without crun", Auto, map[string]string{"runc": ""}, pure, "[{runc /b/runc}]"},
		{"without runc", Auto, map[string]string{"crun": "crun version 2.0"}, pure, "[{crun /b/crun}]"},
		{"old crun", Auto, map[string]string{"runc": "", "crun": "crun version 0.17"}, pure, "[{runc /b/runc}]"},
		{"crun without version", Auto, map[string]string{"runc": "", "crun": "?"}, pure, "[{runc /b/runc}]"},
		{"crun without support for these cgroups", Auto, map[string]string{"runc": "", "crun": "crun version 1.8.1"},
			mixed, "[{runc /b/runc}]"},
		{"runc requested", "runc", map[string]string{"runc": "", "crun": "crun version 1.8.1"}, pure,
			"[{runc /b/runc} {crun /b/crun}]"},
		{"crun requested", "crun", map[string]string{"runc": "", "crun": "crun version 0.17"}, mixed,
			"[{crun /b/crun} {runc /b/runc}]"},
		{"another", "youki", map[string]string{"runc": "", "youki": ""}, pure, "[{youki /b/youki} {runc /b/runc}]"},
		{"requested runtime missing", "youki", map[string]string{"runc": ""}, pure,
			"--oci-runtime: executable file not found in $PATH; install it, or leave the flag out"},
		{"no runtime", Auto, nil, pure, "cannot start containers: neither runc nor a usable crun is in PATH; " +
			install},
	} {
		h := ociHost{
			look: func(name string) (string, error) {
				if _, ok := tt.installed[name]; !ok {
					return "", exec.ErrNotFound
				}
				return "/b/" + name, nil
			},
			path:    func(string) (string, error) { return "", exec.ErrNotFound },
			version: func(path string) (string, error) { return tt.installed[filepath.Base(path)], nil },
			cgroups: tt.cgroups,
		}
		runtimes, err := h.choose(tt.want)
		got := fmt.Sprint(runtimes)
		if err != nil {
			got = err.Error()
		}
		if got != tt.chosen {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.chosen)
		}
	}
}

// tree creates a folder of cgroup v1 in which cgroup v2 has these controllers.
func tree(t *testing.T, controllers string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "unified"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "unified/cgroup.controllers"), []byte(controllers), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
