package tree_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/agent/storage/tree"
)

func TestRead(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "secret")
	root := t.TempDir()
	err := errors.Join(
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.MkdirAll(filepath.Join(root, "a"), 0o755),
		os.WriteFile(filepath.Join(root, "a/file"), []byte("1234"), 0o600),
		os.WriteFile(filepath.Join(root, "large"), []byte("12345"), 0o600),
		os.Symlink("a/file", filepath.Join(root, "inside")),
		os.Symlink(outside, filepath.Join(root, "absolute")),
		os.Symlink("../"+filepath.Base(filepath.Dir(outside))+"/secret", filepath.Join(root, "relative")),
		os.Symlink(filepath.Dir(outside), filepath.Join(root, "folder")),
		os.Symlink("loop", filepath.Join(root, "loop")),
		unix.Mkfifo(filepath.Join(root, "pipe"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"a/file":        "1234",
		"inside":        "1234",
		"large":         "it contains more than 4 bytes",
		"absolute":      "it points outside the volume",
		"relative":      "it points outside the volume",
		"folder/secret": "it points outside the volume",
		"loop":          "too many levels of symbolic links",
		"pipe":          "it is not a regular file",
		"a":             "it is not a regular file",
		"none":          "no such file or directory",
		"a/none":        "no such file or directory",
		"a/file/x":      "not a directory",
	} {
		data, err := tree.Read(root, path, 4)
		got := string(data)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
		if missing := strings.HasPrefix(want, "no such"); errors.Is(err, fs.ErrNotExist) != missing {
			t.Errorf("%s: %v counts as a missing file: %v", path, err, !missing)
		}
	}
}
