// Package oci packs programs into OCI images without a registry or a builder, and
// contains the pause image of every sandbox.
//
// An Archive is an OCI image layout in one tar: the format that `ctr images import`,
// docker load (25 and later) and ImportImages accept. The same Image always gives the
// same bytes, hence the same digests.
package oci

import (
	"archive/tar"
	"bytes"
	_ "crypto/sha256" // for digests
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// annotationName is the annotation from which containerd reads the full name. Other tools read AnnotationRefName, which
// they may take for a tag only.
const annotationName = "io.containerd.image.name"

// File is one file of the only layer. Parent folders are added as needed.
type File struct {
	Path string      // from the root, with or without a leading slash
	Mode fs.FileMode // permission bits, fs.ModeDir or fs.ModeSymlink; 0 means 0755
	Data []byte      // the target for a symlink
	UID  int
	GID  int
}

// Image is one image of one layer for one platform.
type Image struct {
	Ref          string // as in a pod: registry.example/name:tag
	Files        []File
	Entrypoint   []string
	Cmd          []string
	Env          []string
	WorkingDir   string
	User         string
	ExposedPorts []string // 8080/tcp
	Labels       map[string]string
	StopSignal   string
	Arch         string // GOARCH; empty: this machine's
}

type blob struct {
	desc v1.Descriptor
	data []byte
}

// Archive writes images to w as one OCI layout.
func Archive(w io.Writer, images ...Image) error {
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	blobs := map[string]blob{}
	for _, img := range images {
		manifest, err := img.blobs(blobs)
		if err != nil {
			return fmt.Errorf("pack %s: %w", img.Ref, err)
		}
		index.Manifests = append(index.Manifests, manifest)
	}
	return writeLayout(w, index, blobs)
}

// blobs adds the layer, config and manifest of img to all, and returns the
// manifest's entry for the index.
func (img Image) blobs(all map[string]blob) (v1.Descriptor, error) {
	if img.Ref == "" {
		return v1.Descriptor{}, fmt.Errorf("no name")
	}
	data, err := layer(img.Files)
	if err != nil {
		return v1.Descriptor{}, err
	}
	layerDesc := add(all, v1.MediaTypeImageLayer, data)
	config, err := addJSON(all, v1.MediaTypeImageConfig, img.config(layerDesc.Digest))
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := addJSON(all, v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    config,
		Layers:    []v1.Descriptor{layerDesc},
	})
	manifest.Platform = &v1.Platform{OS: "linux", Architecture: img.arch()}
	manifest.Annotations = map[string]string{annotationName: img.Ref, v1.AnnotationRefName: img.Ref}
	return manifest, err
}

func (img Image) arch() string {
	if img.Arch != "" {
		return img.Arch
	}
	return runtime.GOARCH
}

func (img Image) config(layer digest.Digest) v1.Image {
	ports := map[string]struct{}{}
	for _, p := range img.ExposedPorts {
		ports[p] = struct{}{}
	}
	return v1.Image{
		Created:  new(time.Unix(0, 0).UTC()),
		Platform: v1.Platform{OS: "linux", Architecture: img.arch()},
		Config: v1.ImageConfig{
			User: img.User, ExposedPorts: ports, Env: img.Env, Entrypoint: img.Entrypoint, Cmd: img.Cmd,
			WorkingDir: img.WorkingDir, Labels: img.Labels, StopSignal: img.StopSignal,
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer}},
	}
}

func addJSON(all map[string]blob, mediaType string, v any) (v1.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return add(all, mediaType, data), nil
}

func add(all map[string]blob, mediaType string, data []byte) v1.Descriptor {
	desc := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	all[desc.Digest.Encoded()] = blob{desc, data}
	return desc
}

// layer packs files in the order of their paths, each after its folders.
func layer(files []File) ([]byte, error) {
	files = slices.Clone(files)
	for i := range files {
		files[i].Path = strings.TrimPrefix(path.Clean("/"+files[i].Path), "/")
	}
	slices.SortStableFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	made := map[string]bool{".": true}
	for _, f := range files {
		if err := writeFolders(tw, made, path.Dir(f.Path)); err != nil {
			return nil, err
		}
		if f.Mode.IsDir() {
			made[f.Path] = true
		}
		if err := writeEntry(tw, f); err != nil {
			return nil, err
		}
	}
	err := tw.Close()
	return buf.Bytes(), err
}

func writeFolders(tw *tar.Writer, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := writeFolders(tw, made, path.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	return writeEntry(tw, File{Path: dir, Mode: fs.ModeDir | 0o755})
}

func writeEntry(tw *tar.Writer, f File) error {
	mode := f.Mode
	if mode == 0 {
		mode = 0o755
	}
	hdr := &tar.Header{Name: f.Path, Mode: tarMode(mode), Uid: f.UID, Gid: f.GID, ModTime: time.Unix(0, 0),
		Format: tar.FormatPAX}
	switch {
	case mode.IsDir():
		hdr.Typeflag, hdr.Name = tar.TypeDir, f.Path+"/"
	case mode&fs.ModeSymlink != 0:
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, string(f.Data)
	default:
		hdr.Typeflag, hdr.Size = tar.TypeReg, int64(len(f.Data))
	}
	if err := tw.WriteHeader(hdr); err != nil {
		return err
	}
	if hdr.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := tw.Write(f.Data)
	return err
}

// tarMode returns the permission bits with setuid, setgid and sticky.
func tarMode(m fs.FileMode) int64 {
	mode := int64(m.Perm())
	if m&fs.ModeSetuid != 0 {
		mode |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		mode |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	return mode
}

func writeLayout(w io.Writer, index v1.Index, blobs map[string]blob) error {
	layout, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return err
	}
	indexData, err := json.Marshal(index)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	files := []File{{Path: v1.ImageLayoutFile, Data: layout, Mode: 0o644},
		{Path: v1.ImageIndexFile, Data: indexData, Mode: 0o644}}
	for name, b := range blobs {
		files = append(files, File{Path: "blobs/sha256/" + name, Data: b.data, Mode: 0o644})
	}
	// The layout's own two files first, so that a reader knows early what it reads.
	slices.SortStableFunc(files[2:], func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	for _, f := range files {
		if err := writeEntry(tw, f); err != nil {
			return err
		}
	}
	return tw.Close()
}
