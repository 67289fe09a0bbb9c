package tree_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/storage/tree"
)

// someFiles creates a folder with a file, a program in a folder, and a link to a file outside.
func someFiles(t *testing.T) (dir, outside string) {
	t.Helper()
	dir, outside = t.TempDir(), filepath.Join(t.TempDir(), "outside")
	for path, mode := range map[string]os.FileMode{dir + "/file": 0o600, dir + "/sub/program": 0o755 | os.ModeSetuid,
		outside: 0o600} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	return dir, outside
}

func groupAndMode(t *testing.T, path string) (group uint32, mode os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Gid, info.Mode() & (os.ModePerm | os.ModeSetgid | os.ModeSetuid)
}

func TestApplyFSGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can change the group of files")
	}
	for _, c := range []struct {
		name                  string
		readOnly              bool
		top, sub, file, progr os.FileMode
	}{
		{"writable", false, os.ModeSetgid | 0o770, os.ModeSetgid | 0o770, 0o660, os.ModeSetuid | 0o775},
		{"read-only", true, os.ModeSetgid | 0o750, os.ModeSetgid | 0o750, 0o640, os.ModeSetuid | 0o755},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, outside := someFiles(t)
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := tree.ApplyFSGroup(dir, new(int64(4711)), c.readOnly, nil); err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]os.FileMode{dir: c.top, dir + "/sub": c.sub, dir + "/file": c.file, dir +
				"/sub/program": c.progr} {
				if group, mode := groupAndMode(t, path); group != 4711 || mode != want {
					t.Errorf("%s: group %d, mode %v, want %v", path, group, mode, want)
				}
			}
			if group, _ := groupAndMode(t, dir+"/link"); group != 4711 {
				t.Errorf("the link has the group %d", group)
			}
			if group, mode := groupAndMode(t, outside); group == 4711 || mode != 0o600 {
				t.Errorf("the target of the link has the group %d and the mode %v", group, mode)
			}
		})
	}
}

func TestFSGroupChangePolicy(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can change the group of files")
	}
	dir, _ := someFiles(t)
	apply := func(group int64, policy corev1.PodFSGroupChangePolicy) {
		t.Helper()
		if err := tree.ApplyFSGroup(dir, &group, false, &policy); err != nil {
			t.Fatal(err)
		}
	}
	apply(1, corev1.FSGroupChangeOnRootMismatch)
	if err := os.Chown(dir+"/file", -1, 2); err != nil {
		t.Fatal(err)
	}
	apply(1, corev1.FSGroupChangeOnRootMismatch)
	if group, _ := groupAndMode(t, dir+"/file"); group != 2 {
		t.Errorf("OnRootMismatch with the right root: the file has the group %d", group)
	}
	apply(1, corev1.FSGroupChangeAlways)
	if group, _ := groupAndMode(t, dir+"/file"); group != 1 {
		t.Errorf("Always: the file has the group %d", group)
	}
	apply(3, corev1.FSGroupChangeOnRootMismatch)
	if group, _ := groupAndMode(t, dir+"/file"); group != 3 {
		t.Errorf("OnRootMismatch with a wrong root: the file has the group %d", group)
	}
}
