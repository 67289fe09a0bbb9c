package fake

import (
	"archive/tar"
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxMetadata is the maximum size of a file of an archive that is read, in bytes. Larger layers are skipped.
const maxMetadata = 1 << 20

// Image is the content of an image.
type Image struct {
	ID     string // digest of its config
	Size   uint64 // sum of its compressed layers, in bytes; 0: unknown
	Config v1.ImageConfig
	Layers []Layer
}

// Named is an image with one of its names in an archive.
type Named struct {
	Name     string
	Manifest digest.Digest
	Image    *Image
}

// readArchive reads an archive in the format of docker save or an OCI layout, which may be
// compressed with gzip or zstd. It fails if no image has a name.
func readArchive(from io.Reader) ([]Named, error) {
	plain, err := decompress(from)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	meta, err := readMetadata(plain)
	if err != nil {
		return nil, err
	}
	if _, ok := meta[v1.ImageIndexFile]; ok {
		return meta.oci()
	}
	return meta.docker()
}

// decompress recognizes gzip and zstd by their first bytes.
func decompress(from io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReader(from)
	magic, _ := in.Peek(4)
	switch {
	case len(magic) >= 2 && string(magic[:2]) == "\x1f\x8b":
		return gzip.NewReader(in)
	case string(magic) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}

// metadata are the small files of an archive by name.
type metadata map[string][]byte

func readMetadata(from io.Reader) (metadata, error) {
	meta := metadata{}
	for r := tar.NewReader(from); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return meta, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg || header.Size > maxMetadata {
			continue
		}
		if meta[path.Clean(header.Name)], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

func (m metadata) decode(name string, into any) error {
	data, ok := m[name]
	if !ok {
		return fmt.Errorf("%s is missing", name)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func blob(d digest.Digest) string {
	return path.Join(v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// oci reads an OCI layout, whose index has the names as annotations.
func (m metadata) oci() (found []Named, err error) {
	var index v1.Index
	if err := m.decode(v1.ImageIndexFile, &index); err != nil {
		return nil, err
	}
	for _, d := range index.Manifests {
		name := cmp.Or(d.Annotations["io.containerd.image.name"], d.Annotations[v1.AnnotationRefName])
		if name == "" {
			continue
		}
		img, err := m.manifest(d)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", name, err)
		}
		found = append(found, Named{Name: name, Manifest: d.Digest, Image: img})
	}
	if len(found) == 0 {
		return nil, errors.New("no image in it has a name")
	}
	return found, nil
}

// manifest reads an image, or from an index the image for our platform.
func (m metadata) manifest(d v1.Descriptor) (*Image, error) {
	if err := d.Digest.Validate(); err != nil {
		return nil, err
	}
	var content struct {
		v1.Manifest
		Manifests []v1.Descriptor `json:"manifests"`
	}
	if err := m.decode(blob(d.Digest), &content); err != nil {
		return nil, err
	}
	if len(content.Manifests) > 0 {
		return m.manifest(pick(content.Manifests))
	}
	return m.config(content.Manifest)
}

// pick returns the manifest for our platform, or the first.
func pick(all []v1.Descriptor) v1.Descriptor {
	ours := func(d v1.Descriptor) bool { return d.Platform != nil && d.Platform.Architecture == runtime.GOARCH }
	return all[max(0, slices.IndexFunc(all, ours))]
}

func (m metadata) config(manifest v1.Manifest) (*Image, error) {
	if err := manifest.Config.Digest.Validate(); err != nil {
		return nil, err
	}
	var config v1.Image
	if err := m.decode(blob(manifest.Config.Digest), &config); err != nil {
		return nil, err
	}
	img := &Image{ID: manifest.Config.Digest.String(), Config: config.Config}
	for _, layer := range manifest.Layers {
		img.Size += uint64(max(0, layer.Size))
		img.Layers = append(img.Layers, m.layer(blob(layer.Digest)))
	}
	return img, nil
}

// docker reads the format of docker save, which has the names in manifest.json.
func (m metadata) docker() (found []Named, err error) {
	var manifests []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := m.decode("manifest.json", &manifests); err != nil {
		return nil, err
	}
	for _, manifest := range manifests {
		var config v1.Image
		if err := m.decode(path.Clean(manifest.Config), &config); err != nil {
			return nil, err
		}
		id := digest.FromBytes(m[path.Clean(manifest.Config)])
		img := &Image{ID: id.String(), Config: config.Config}
		for _, name := range manifest.Layers {
			img.Layers = append(img.Layers, m.layer(path.Clean(name)))
		}
		for _, name := range manifest.RepoTags {
			found = append(found, Named{Name: name, Manifest: id, Image: img})
		}
	}
	return found, nil
}
