package mount_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"monopod/agent/host/mount"
)

// The kernel escapes some characters of a path in octal. Below finds mounts for every name of the data folder, so that
// nothing removes their files.
func TestMountsBelowFolderWithSpecialName(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{
		"space": "a b", "tab": "a\tb", "newline": "a\nb", "backslash": `a\b`, "octal": `a\040b`,
		"no-break space": "a\u00a0b", "carriage return": "a\rb", "hash": "a#b", "all": " \t\n\\",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), folder)
			outer, inner := filepath.Join(dir, "x y"), filepath.Join(dir, "x y", `in\ner`)
			tmpfs(t, outer)
			tmpfs(t, inner)
			tmpfs(t, filepath.Join(dir+"2", "another's"))
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{dir, link} {
				got, err := mount.Below(dir)
				if want := []string{inner, outer}; err != nil || !slices.Equal(got, want) {
					t.Errorf("below %q: %q, %v; want %q", dir, got, err, want)
				}
			}
			if got, err := mount.Below(inner); err != nil || len(got) != 0 {
				t.Errorf("mounts below the innermost mount: %q, error %v", got, err)
			}
			if err := (mount.Kernel{}).UnmountBelow(link); err != nil {
				t.Error(err)
			}
			if got, err := mount.Below(dir); err != nil || len(got) != 0 {
				t.Errorf("mounts left: %q, error %v", got, err)
			}
			if got, err := mount.Below(dir + "2"); err != nil || len(got) != 1 {
				t.Errorf("mounts below a sibling folder: %q, error %v; want one", got, err)
			}
		})
	}
}

func TestMissingFolderHasNoMounts(t *testing.T) {
	t.Parallel()
	if got, err := mount.Below(filepath.Join(t.TempDir(), "not", "there")); err != nil || len(got) != 0 {
		t.Errorf("mounts below a missing folder: %q, error %v", got, err)
	}
}

// tmpfs mounts a tmpfs at dir until the test ends.
func tmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (mount.Kernel{}).Tmpfs(dir, mount.Tmpfs{Mode: 0o755}); err != nil {
		t.Skipf("skipped: cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = mount.Kernel{}.Unmount(dir) })
}
