package datadir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/store/datadir"
)

func modeOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%04o", info.Mode().Perm())
}

func make(t *testing.T, path string, mode os.FileMode, dir bool) {
	t.Helper()
	var err error
	if dir {
		err = os.Mkdir(path, mode)
	} else {
		err = os.WriteFile(path, nil, mode)
	}
	if err == nil {
		err = os.Chmod(path, mode) // independent of the umask
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Open creates, changes, accepts or refuses a folder by its mode and whether it is empty.
func TestOpen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode    os.FileMode
		full    bool
		want    string
		changed int
		refused string
	}{
		{mode: 0, want: "0711"}, // does not exist
		{mode: 0o711, full: true, want: "0711"},
		{mode: 0o700, full: true, want: "0700"},
		{mode: 0o710, want: "0710"},
		{mode: 0o755, full: true, want: "0711", changed: 1},
		{mode: 0o777, want: "0711", changed: 1},
		{mode: 0o1777, want: "0711", changed: 1},
		{mode: 0o777, full: true, refused: "(mode 0777), so its content may come from them: check it, then run chmod 0711 /"},
		{mode: 0o775, full: true, refused: "(mode 0775)"},
		{mode: 0o702, full: true, refused: "(mode 0702)"},
	} {
		t.Run(fmt.Sprintf("%04o, full %t", c.mode, c.full), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "above", "data")
			if c.mode != 0 {
				if err := os.Mkdir(filepath.Dir(dir), 0o755); err != nil {
					t.Fatal(err)
				}
				make(t, dir, c.mode, true)
			}
			if c.full {
				make(t, filepath.Join(dir, "file"), 0o600, false)
			}
			changed, err := datadir.Open(dir)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("not refused: %v", err)
				}
				return
			}
			if got := modeOf(t, dir); err != nil || got != c.want || len(changed) != c.changed {
				t.Errorf("mode %s, %q, %v", got, changed, err)
			}
		})
	}
}

// Open restricts the modes of files that were restored with wide modes, and of folders with secrets.
func TestModesAreRestricted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, folder := range map[string]bool{"state.db": false, "admin.kubeconfig": false, "config.json": false,
		"pki": true, "snapshots": true, "logs": true} {
		make(t, filepath.Join(dir, name), map[bool]os.FileMode{true: 0o755, false: 0o644}[folder], folder)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	make(t, outside, 0o644, false)
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Open(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"state.db": "0600", "admin.kubeconfig": "0600", "config.json": "0600", "pki": "0700", "images": "0700",
		"manifests": "0700",
		"snapshots": "0700", "logs": "0755", "link": "0644",
	} {
		if got := modeOf(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s: mode %s, want %s", name, got, want)
		}
	}
	if changed, err := datadir.Open(dir); len(changed) > 0 || err != nil {
		t.Errorf("again: %q, %v", changed, err)
	}
}

func TestNoFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	make(t, path, 0o600, false)
	if _, err := datadir.Open(path); err == nil {
		t.Error("a file was accepted as a folder")
	}
}
