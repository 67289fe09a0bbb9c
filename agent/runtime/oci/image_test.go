package oci_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/agent/runtime/oci"
)

func sample() oci.Image {
	return oci.Image{
		Ref: "monopod.local/web:1",
		Files: []oci.File{
			{Path: "/usr/bin/web", Data: []byte("program")},
			{Path: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0::/:/bin/sh\n")},
			{Path: "bin/sh", Mode: fs.ModeSymlink | 0o777, Data: []byte("/usr/bin/web")},
			{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		},
		Entrypoint: []string{"/usr/bin/web"}, Env: []string{"A=b"}, User: "1000", ExposedPorts: []string{"8080/tcp"},
	}
}

func pack(t *testing.T, images ...oci.Image) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := oci.Archive(&buf, images...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func untar(t *testing.T, data []byte) (names []string, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{}
	tr := tar.NewReader(bytes.NewReader(data))
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, hdr.FileInfo().Mode().String()+" "+hdr.Name)
		files[hdr.Name] = content
	}
}

func decode[T any](t *testing.T, data []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestArchiveIsDeterministic(t *testing.T) {
	t.Parallel()
	if !bytes.Equal(pack(t, sample()), pack(t, sample())) {
		t.Error("two archives of one image differ")
	}
}

func TestArchiveLayout(t *testing.T) {
	t.Parallel()
	_, files := untar(t, pack(t, sample()))
	blob := func(d v1.Descriptor) []byte {
		data := files[path.Join("blobs/sha256", d.Digest.Encoded())]
		if digest.FromBytes(data) != d.Digest || int64(len(data)) != d.Size {
			t.Errorf("blob %s does not match its descriptor", d.Digest)
		}
		return data
	}
	index := decode[v1.Index](t, files["index.json"])
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "monopod.local/web:1" {
		t.Errorf("name = %q", got)
	}
	manifest := decode[v1.Manifest](t, blob(index.Manifests[0]))
	config := decode[v1.Image](t, blob(manifest.Config))
	want := v1.ImageConfig{
		User: "1000", Env: []string{"A=b"}, Entrypoint: []string{"/usr/bin/web"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Error(diff)
	}
	names, _ := untar(t, blob(manifest.Layers[0]))
	if diff := cmp.Diff([]string{
		"drwxr-xr-x bin/", "Lrwxrwxrwx bin/sh", "drwxr-xr-x etc/", "-rw-r--r-- etc/passwd",
		"dtrwxrwxrwx tmp/", "drwxr-xr-x usr/", "drwxr-xr-x usr/bin/", "-rwxr-xr-x usr/bin/web",
	}, names); diff != "" {
		t.Error(diff)
	}
}

func TestArchiveOfTwoSharesBlobs(t *testing.T) {
	t.Parallel()
	other := sample()
	other.Ref = "monopod.local/other:1"
	names, files := untar(t, pack(t, sample(), other))
	if index := decode[v1.Index](t, files["index.json"]); len(index.Manifests) != 2 {
		t.Errorf("manifests = %d, want 2", len(index.Manifests))
	}
	if len(names) != 5 {
		t.Errorf("files = %v, want layout, index and three shared blobs", names)
	}
}

func TestArchiveWithoutName(t *testing.T) {
	t.Parallel()
	if err := oci.Archive(io.Discard, oci.Image{}); err == nil {
		t.Error("an image without a name was packed")
	}
}
