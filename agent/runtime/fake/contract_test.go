package fake_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"monopod/agent/runtime/fake"
	"monopod/agent/runtime/runtimetest"
	"monopod/testdata/web/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRuntime(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]fake.Config{"memory": {}, "loopback": {Loopback: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtimetest.Run(t, func(t *testing.T) runtimetest.Env { return open(t, config) })
		})
	}
}

func open(t *testing.T, config fake.Config) runtimetest.Env {
	r := fake.New(config)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := r.ImportImages(t.Context(), archive(t)); err != nil {
		t.Fatal(err)
	}
	return runtimetest.Env{Runtime: r, Image: image.Name, LogDir: t.TempDir()}
}

// archive writes an archive with the sample image. The fake has its own copy of the program.
func archive(t *testing.T) (file string) {
	t.Helper()
	var out bytes.Buffer
	if err := image.Write(&out, image.Name, []byte("not used")); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "web.tar")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
