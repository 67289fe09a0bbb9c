package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"monopod/testdata/web/image"
)

// TestWrite reads the archive with another library, which verifies every digest.
func TestWrite(t *testing.T) {
	t.Parallel()
	var archive, again bytes.Buffer
	for _, out := range []*bytes.Buffer{&archive, &again} {
		if err := image.Write(out, image.Name, []byte("program")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("two archives of the same input differ")
	}

	index, err := layout.ImageIndexFromPath(unpack(t, &archive))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("index: %+v, %v", manifest, err)
	}
	if name := manifest.Manifests[0].Annotations["io.containerd.image.name"]; name != image.Name {
		t.Errorf("the image has the name %q", name)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil || len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/web" {
		t.Errorf("config %+v, %v", config, err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers: %v, %v", layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	tree := unpack(t, content)
	if data, err := os.ReadFile(filepath.Join(tree, "web")); err != nil || string(data) != "program" {
		t.Errorf("/web is %q, %v", data, err)
	}
}

func unpack(t *testing.T, from io.Reader) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for r := tar.NewReader(from); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}
