// Package image packs one static program into an OCI image archive, without a
// registry or a builder. The same input gives the same bytes.
package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"path"
	"runtime"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Name is the sample image's.
const Name = "monopod.local/web:1"

// nameAnnotation is where containerd looks for an image's full name; the OCI's
// own annotation may hold the tag alone.
const nameAnnotation = "io.containerd.image.name"

// Write writes an archive that holds one image of that name (with domain and
// tag): the program as its entry point /web, and an empty /tmp.
func Write(w io.Writer, name string, program []byte) error {
	layer, err := layer(program)
	if err != nil {
		return err
	}
	archive := archive{tar: tar.NewWriter(w)}
	archive.write(v1.ImageLayoutFile, encode(v1.ImageLayout{Version: v1.ImageLayoutVersion}))
	manifest := archive.blob(v1.MediaTypeImageManifest, encode(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    archive.blob(v1.MediaTypeImageConfig, encode(config(layer))),
		Layers:    []v1.Descriptor{archive.blob(v1.MediaTypeImageLayer, layer)},
	}))
	manifest.Platform = new(platform())
	manifest.Annotations = map[string]string{nameAnnotation: name, v1.AnnotationRefName: name}
	archive.write(v1.ImageIndexFile, encode(v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{manifest},
	}))
	return archive.close()
}

func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

func config(layer []byte) v1.Image {
	return v1.Image{
		Platform: platform(),
		Config: v1.ImageConfig{
			Entrypoint:   []string{"/web"},
			Env:          []string{"PATH=/"},
			WorkingDir:   "/",
			ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			StopSignal:   "SIGTERM",
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	}
}

func layer(program []byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
		return nil, err
	}
	if err := w.WriteHeader(&tar.Header{Name: "web", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// archive is an OCI layout in a tar. Its first error stays.
type archive struct {
	tar *tar.Writer
	err error
}

func (a *archive) blob(mediaType string, data []byte) v1.Descriptor {
	d := digest.FromBytes(data)
	a.write(path.Join(v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded()), data)
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func (a *archive) write(name string, data []byte) {
	if a.err == nil {
		a.err = a.tar.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))})
	}
	if a.err == nil {
		_, a.err = a.tar.Write(data)
	}
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return a.tar.Close()
}

// encode cannot fail: all it is given are plain structs.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
