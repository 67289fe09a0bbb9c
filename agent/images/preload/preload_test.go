package preload

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// holder is a runtime in which each archive is one image.
type holder struct {
	has     map[string]bool
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
	name := filepath.Base(path) + ":1"
	h.imports++
	h.has[name] = true
	return []string{name}, nil
}

// TestArrived: pods that wait for an image look again after each import, also after a restart of the process with which the
// runtime lost its images, although the record of what was imported stays the same.
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
	}{{"first", false, 1, 1}, {"again", false, 0, 0}, {"without its images", true, 1, 1}} {
		if runtime.imports = 0; start.lost {
			clear(runtime.has)
		}
		arrived := 0
		New(Config{
			Dir: dir, Record: filepath.Join(dir, "imported.json"), Runtime: runtime, Clock: clock.RealClock{}, Log: zap.NewNop(), Arrived: func() { arrived++ },
		}).importAll(t.Context())
		if runtime.imports != start.imports || arrived != start.arrived {
			t.Errorf("start %s: %d imports, told %d times; want %d and %d", start.what, runtime.imports, arrived, start.imports, start.arrived)
		}
	}
}
