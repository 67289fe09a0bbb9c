package fake_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"monopod/agent/runtime/fake"
	"monopod/testdata/web/image"
)

func TestImageNames(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, r *fake.Runtime) {
		id, err := r.PullImage(t.Context(), "nginx", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"nginx", "nginx:latest", "docker.io/library/nginx:latest", id} {
			img, err := r.ImageStatus(t.Context(), name)
			if err != nil || img.GetId() != id {
				t.Errorf("%s: %v, %v", name, img, err)
			}
		}
		again, err := r.PullImage(t.Context(), "docker.io/nginx", nil, nil)
		if err != nil || again != id {
			t.Errorf("a second pull of the same image returned %q, error %v", again, err)
		}
		img, _ := r.ImageStatus(t.Context(), id)
		if len(img.RepoTags) != 1 || len(img.RepoDigests) != 1 || img.Pinned {
			t.Errorf("image %v", img)
		}
		if byDigest, err := r.ImageStatus(t.Context(), img.RepoDigests[0]); err != nil || byDigest.GetId() != id {
			t.Errorf("image by digest: %v, error %v", byDigest, err)
		}
		if _, err := r.PullImage(t.Context(), "Not A Name", nil, nil); err == nil {
			t.Error("the pull of an invalid name succeeded")
		}
	})
}

// TestImportKinds imports every kind of archive that users have.
func TestImportKinds(t *testing.T) {
	t.Parallel()
	r := fake.New(fake.Config{})
	defer r.Close()
	var oci bytes.Buffer
	if err := image.Write(&oci, "example.com/oci:1", []byte("oci")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		data []byte
		want []string // nil: the import fails
	}{
		{"oci", oci.Bytes(), []string{"example.com/oci:1"}},
		{"zstd", compressed(t, oci.Bytes()), []string{"example.com/oci:1"}},
		{"docker", tarOf(t, map[string]string{
			"manifest.json": `[{"Config":"abc.json","RepoTags":["web:1","example.com/web:2"],"Layers":["l/layer.tar"]}]`,
			"abc.json":      `{"config":{"Entrypoint":["/web"]}}`,
		}), []string{"docker.io/library/web:1", "example.com/web:2"}},
		{"truncated", oci.Bytes()[:600], nil},
		{"not a tar", []byte("hello"), nil},
		{"empty", nil, nil},
		{"no names", tarOf(t, map[string]string{"index.json": `{"manifests":[{"digest":"sha256:1"}]}`}), nil},
		{"bad json", tarOf(t, map[string]string{"manifest.json": `[{`}), nil},
		{"blob missing", tarOf(t, map[string]string{
			"index.json": `{"manifests":[{"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000",` +
				`"annotations":{"org.opencontainers.image.ref.name":"a:1"}}]}`,
		}), nil},
	} {
		file := filepath.Join(t.TempDir(), "archive")
		if err := os.WriteFile(file, tc.data, 0o600); err != nil {
			t.Fatal(err)
		}
		names, err := r.ImportImages(t.Context(), file)
		if (err == nil) != (tc.want != nil) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if diff := cmp.Diff(tc.want, names); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

// TestRetag checks that a name belongs to the image that was imported last.
func TestRetag(t *testing.T) {
	t.Parallel()
	r := fake.New(fake.Config{})
	defer r.Close()
	var ids []string
	for _, program := range []string{"old", "new"} {
		var out bytes.Buffer
		if err := image.Write(&out, image.Name, []byte(program)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "web.tar")
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ImportImages(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		img, err := r.ImageStatus(t.Context(), image.Name)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, img.Id)
	}
	if ids[0] == ids[1] {
		t.Fatal("the name still belongs to the old image")
	}
	if old, err := r.ImageStatus(t.Context(), ids[0]); err != nil || slices.Contains(old.GetRepoTags(), image.Name) {
		t.Errorf("the old image still has the name: %v, %v", old, err)
	}
}

func compressed(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

func tarOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		if err := w.WriteHeader(
			&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
