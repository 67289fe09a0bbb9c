package pull

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/runtime/oci"
)

// holder is a runtime that imports each archive as one image.
type holder struct {
	has     map[string]bool
	bad     map[string]error // errors of imports, by the name of the archive
	imports int
}

func (h *holder) Version(context.Context) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{}, nil
}

func (h *holder) ImageStatus(_ context.Context, name string) (*cri.Image, error) {
	if h.has[name] {
		return &cri.Image{Id: name}, nil
	}
	return nil, nil
}

func (h *holder) ImportImages(_ context.Context, path string) ([]string, error) {
	if err := h.bad[filepath.Base(path)]; err != nil {
		return nil, err
	}
	name := filepath.Base(path) + ":1"
	h.imports++
	h.has[name] = true
	return []string{name}, nil
}

// TestArrived checks that Arrived is called after each import, so that pods that wait for an image retry. After a
// restart, it is also called if the runtime has lost its images, although the record of imports is unchanged.
func TestArrived(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web.tar"), []byte("web"), 0o600); err != nil {
		t.Fatal(err)
	}
	runtime := &holder{has: map[string]bool{}}
	for _, start := range []struct {
		what             string
		lost             bool
		imports, arrived int
	}{{"first", false, 1, 1}, {"second", false, 0, 0}, {"without its images", true, 1, 1}} {
		if runtime.imports = 0; start.lost {
			clear(runtime.has)
		}
		arrived := 0
		NewImporter(PreloadConfig{
			Dir: dir, Record: filepath.Join(dir, "imported.json"), Runtime: runtime, Clock: clock.RealClock{}, Log: zap.NewNop(),
			Arrived:  func() { arrived++ },
			Imported: func([]string, error) {}, Failed: func(message string) { t.Errorf("failed: %s", message) },
		}).importAll(t.Context())
		if runtime.imports != start.imports || arrived != start.arrived {
			t.Errorf(
				"start %s: %d imports, %d calls of Arrived; want %d and %d",
				start.what,
				runtime.imports,
				arrived,
				start.imports,
				start.arrived,
			)
		}
	}
}

// An archive that fails to import does not prevent the import of others. Failed reports it until its import succeeds or
// its removal.
func TestFailed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.tar", "b.tar", "c.tar"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runtime := &holder{has: map[string]bool{}, bad: map[string]error{
		"a.tar": &oci.WrongPlatform{Names: []string{"a:1"}, Has: []string{"arm64"}, Machine: "amd64"},
		"c.tar": status.Error(codes.Unknown, "unrecognized image format"),
	}}
	var told []string
	results := map[bool]int{}
	i := NewImporter(PreloadConfig{
		Dir: dir, Record: filepath.Join(dir, "imported.json"), Runtime: runtime, Clock: clock.RealClock{}, Log: zap.NewNop(),
		Arrived:  func() {},
		Imported: func(_ []string, err error) { results[err == nil]++ }, Failed: func(message string) {
			told = append(told,
				message)
		},
	})
	for _, change := range []func(){func() {}, func() {}, func() { delete(runtime.bad, "a.tar") },
		func() { _ = os.Remove(filepath.Join(dir, "c.tar")) }} {
		change()
		i.importAll(t.Context())
	}
	want := []string{
		"a.tar: image a:1 is built for arm64, this machine is amd64; c.tar: unrecognized image format",
		"c.tar: unrecognized image format",
		"",
	}
	if !slices.Equal(told, want) || !runtime.has["b.tar:1"] {
		t.Errorf("Failed got %q, want %q; the runtime has %v", told, want, runtime.has)
	}
	if results[true] != 2 || results[false] != 5 {
		t.Errorf("imports by success: %v, want 2 successes and 5 failures", results)
	}
}
