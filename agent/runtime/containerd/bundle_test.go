package containerd

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pods that an earlier version started in the containerd of the machine must not be started again in another
// containerd.
func TestMoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pods", "1-2-3"), 0o755); err != nil {
		t.Fatal(err)
	}
	sandbox := func(uid string) []*api.PodSandbox {
		return []*api.PodSandbox{{Metadata: &api.PodSandboxMetadata{Uid: uid, Namespace: "default", Name: "web"}}}
	}
	if err := moved(dir, sandbox("1-2-3")); err == nil || !strings.Contains(err.Error(), "--containerd="+hostSocket) {
		t.Errorf("pod of this data folder in the containerd of the machine: %v", err)
	}
	for _, uid := range []string{"4-5-6", ""} {
		if err := moved(dir, sandbox(uid)); err != nil {
			t.Errorf("pod %q of another data folder: %v", uid, err)
		}
	}
}

// removeUnused removes programs of earlier versions and partially unpacked programs, except those that run.
func TestRemoveUnused(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "old", unpacking + "1"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := (archive{}).removeUnused(dir, filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "new" {
		t.Errorf("folders left: %v, error %v", left, err)
	}
	used, err := executed(filepath.Dir(filepath.Dir(self)))
	if err != nil || !used[filepath.Dir(self)] {
		t.Errorf("executed does not report the folder of this program: %v, error %v", used, err)
	}
}

// packed contains the programs in the bundle of TestFailpoints.
var packed = map[string]string{"containerd": strings.Repeat("c", 1<<16), "runc": "r"}

func testBundle(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewWriter(compressed)
	for name, text := range packed {
		if err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), "0123456789ab"...)
}

// TestFailpoints interrupts unpack before each of its steps: by a power cut, which truncates files that are not synced,
// and by an error such as a full disk. The next start must unpack this version completely, and remove all other
// folders.
func TestFailpoints(t *testing.T) {
	t.Parallel()
	bundle := testBundle(t)
	// try interrupts unpack at a step, and returns the steps so far.
	try := func(dir string, at int, powerCut bool) (steps []string, err error) {
		var unsynced []string
		defer func() {
			if recover() == nil {
				return
			}
			for _, file := range unsynced {
				if e := os.Truncate(file, 0); e != nil {
					t.Error(e)
				}
			}
		}()
		_, err = archive{bundle: bundle, before: func(step, path string) error {
			if steps = append(steps, step); len(steps) == at+1 && powerCut {
				panic("power cut")
			} else if len(steps) == at+1 {
				return unix.ENOSPC
			}
			switch step {
			case "write":
				unsynced = append(unsynced, path)
			case "sync":
				unsynced = slices.DeleteFunc(unsynced, func(s string) bool { return s == path })
			}
			return nil
		}}.unpack(dir)
		return steps, err
	}
	installed := func(t *testing.T) string { // creates a folder with an earlier version
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "old"), 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	folders := func(dir string) (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	all, err := try(installed(t), -1, true)
	if want := []string{"create", "write", "sync", "write", "sync", "sync", "rename", "sync", "remove"}; err != nil ||
		!slices.Equal(all, want) {
		t.Fatalf("steps %v, %v", all, err)
	}
	for at := range all {
		for _, powerCut := range []bool{true, false} {
			name := fmt.Sprintf("step %d, %s, power cut %v", at, all[at], powerCut)
			dir := installed(t)
			if _, err := try(dir, at, powerCut); !powerCut && err == nil {
				t.Errorf("%s: unpack returned no error", name)
			}
			if left := folders(dir); !powerCut && strings.Contains(fmt.Sprint(left), unpacking) {
				t.Errorf("%s: partially unpacked folders left: %v", name, left)
			}
			to, err := archive{bundle: bundle}.unpack(dir)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for program, text := range packed {
				if got, err := os.ReadFile(filepath.Join(to, program)); err != nil || string(got) != text {
					t.Errorf("%s: %s has %d bytes, %v", name, program, len(got), err)
				}
			}
			if left := folders(dir); !slices.Equal(left, []string{"0123456789ab"}) {
				t.Errorf("%s: folders left: %v", name, left)
			}
		}
	}
}
