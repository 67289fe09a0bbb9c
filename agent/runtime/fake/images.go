package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"monopod/agent/runtime"
)

// images contains the images and implements CRI's ImageService.
type images struct {
	gate *Gate

	mu     sync.Mutex              // guards images, and the tags, digests and pins of each
	images map[string]*storedImage // by ID
}

// ErrNoStats is the error of calls that return measurements of a real runtime.
var ErrNoStats = status.Error(codes.Unimplemented, "containers in memory have no statistics")

// storedImage is immutable except for tags, digests and pinned.
type storedImage struct {
	*Image
	tags        []string // full names with tag
	digests     []string // full names with digest
	pinned      bool
	placeholder bool // pulled without a registry, so its program is not known
}

// Ref returns the name of an image in a container's status.
func (s *images) Ref(i *storedImage) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(i.digests) > 0 {
		return i.digests[0]
	}
	return i.ID
}

// Name returns the name of an image in a container's status as containerd does: its first tag or digest, else the name
// in the request.
func (s *images) Name(i *storedImage, requested *cri.ImageSpec) *cri.ImageSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	if names := slices.Concat(i.tags, i.digests); len(names) > 0 {
		return &cri.ImageSpec{Image: names[0]}
	}
	return requested
}

func (i *storedImage) status() *cri.Image {
	return &cri.Image{
		Id: i.ID, RepoTags: slices.Clone(i.tags), RepoDigests: slices.Clone(i.digests), Size: i.Size, Pinned: i.pinned,
		Spec: &cri.ImageSpec{Image: i.ID},
	}
}

// normalize returns the full name of an image: web is docker.io/library/web:latest.
func normalize(name string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "image name %q: %v", name, err)
	}
	return named, nil
}

// Lookup returns an image by ID or by name.
func (s *images) Lookup(name string) (*storedImage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(name)
}

// find is Lookup for callers that hold mu.
func (s *images) find(name string) (*storedImage, bool) {
	if i, ok := s.images[name]; ok {
		return i, true
	}
	if i, ok := s.images["sha256:"+name]; ok {
		return i, true
	}
	named, err := normalize(name)
	if err != nil {
		return nil, false
	}
	for _, i := range s.images {
		if slices.Contains(i.tags, named.String()) || slices.Contains(i.digests, named.String()) {
			return i, true
		}
	}
	return nil, false
}

// add adds an image under a name; an older image with the same tag loses it.
func (s *images) add(named reference.Named, manifest digest.Digest, i *storedImage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.images[i.ID]; ok {
		known.pinned = known.pinned || i.pinned
		i = known
	}
	s.images[i.ID] = i
	if _, ok := named.(reference.Digested); !ok {
		isTag := func(tag string) bool { return tag == named.String() }
		for _, other := range s.images {
			other.tags = slices.DeleteFunc(other.tags, isTag)
		}
		i.tags = append(i.tags, named.String())
	}
	if d := reference.TrimNamed(named).String() + "@" + manifest.String(); !slices.Contains(i.digests, d) {
		i.digests = append(i.digests, d)
	}
}

// ImportImages implements runtime.Runtime. It reads names, configs and small layers.
func (s *images) ImportImages(ctx context.Context, file string) ([]string, error) {
	if err := s.gate.Begin(ctx, "ImportImages", file); err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "import %s: %v", file, err)
	}
	defer f.Close()
	names, err := s.ImportArchive(ctx, f)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "import %s: %v", file, err)
	}
	return names, nil
}

// ExportImages implements runtime.Runtime.
func (s *images) ExportImages(context.Context, []string, io.Writer) error {
	return status.Error(codes.Unimplemented,
		"the fake runtime does not keep the layers of images; run with --runtime=containerd to save them")
}

// Downloads implements runtime.Runtime: layers are not kept.
func (s *images) Downloads(context.Context) ([]runtime.Download, error) { return nil, nil }

// ImportArchive implements runtime.Runtime.
func (s *images) ImportArchive(_ context.Context, from io.Reader) ([]string, error) {
	found, err := readArchive(from)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	var names []string
	for _, entry := range found {
		named, err := normalize(entry.Name)
		if err != nil {
			return nil, err
		}
		s.add(named, entry.Manifest, &storedImage{Image: entry.Image, pinned: true})
		names = append(names, named.String())
	}
	return names, nil
}

// PullImage pulls from a registry on loopback. For any other valid name it creates a placeholder image.
func (s *images) PullImage(ctx context.Context, name string, auth *cri.AuthConfig,
	_ *cri.PodSandboxConfig) (string, error) {
	return Answer(ctx, s.gate, "PullImage", name, func() (string, error) { return s.pullImage(ctx, name, auth) })
}

func (s *images) pullImage(ctx context.Context, name string, auth *cri.AuthConfig) (string, error) {
	named, err := normalize(name)
	if err != nil {
		return "", err
	}
	if OnLoopback(named) {
		fetched, manifest, err := Fetch(ctx, named, auth)
		if err != nil {
			return "", err
		}
		s.add(named, manifest, &storedImage{Image: fetched})
		return fetched.ID, nil
	}
	if i, ok := s.Lookup(name); ok {
		return i.ID, nil
	}
	manifest := digest.FromString("manifest of " + named.String())
	if d, ok := named.(reference.Digested); ok {
		manifest = d.Digest()
	}
	i := &storedImage{placeholder: true, Image: &Image{
		ID: digest.FromString("config of " + named.String()).String(), Size: 1 << 20,
		Config: v1.ImageConfig{Entrypoint: []string{"/web"}, Env: []string{"PATH=/"}, WorkingDir: "/"},
	}}
	s.add(named, manifest, i)
	return i.ID, nil
}

// ListImages returns the images sorted by ID.
func (s *images) ListImages(ctx context.Context) (list []*cri.Image, err error) {
	if err := s.gate.Begin(ctx, "ListImages", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.images)) {
		list = append(list, s.images[id].status())
	}
	return list, nil
}

// ImageStatus returns an image by ID, name or digest; nil if it is missing.
func (s *images) ImageStatus(ctx context.Context, name string) (*cri.Image, error) {
	if err := s.gate.Begin(ctx, "ImageStatus", name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.find(name); ok {
		return i.status(), nil
	}
	return nil, nil
}

// RemoveImage removes an image with all of its names. Its containers keep running.
func (s *images) RemoveImage(ctx context.Context, name string) error {
	if err := s.gate.Begin(ctx, "RemoveImage", name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.find(name); ok {
		delete(s.images, i.ID)
	}
	return nil
}

// show returns the files of an image mount: all of the image, or a folder of it.
func (s *images) show(m *cri.Mount) (fs.FS, error) {
	failed := func(code codes.Code, err error) error {
		return status.Errorf(code, "%v: %v", crierrors.ErrImageVolumeMountFailed, err)
	}
	if !m.Readonly || m.HostPath != "" {
		return nil, failed(codes.InvalidArgument, errors.New("an image mount must be read-only and have no host path"))
	}
	img, ok := s.Lookup(m.Image.Image)
	if !ok {
		return nil, failed(codes.NotFound, fmt.Errorf("no image %q", m.Image.Image))
	}
	all, err := img.Tree()
	if err != nil {
		return nil, failed(codes.Unimplemented, err)
	}
	sub, err := Folder(all, m.ImageSubPath)
	if err != nil {
		return nil, failed(codes.Unknown, err)
	}
	return sub, nil
}

// Mounts returns the mounts of a container. It fails if the image of an image mount is
// missing, as containerd does.
func (s *images) Mounts(config *cri.ContainerConfig) ([]Mount, error) {
	var out []Mount
	for _, m := range config.GetMounts() {
		var shown fs.FS
		var err error
		if m.Image != nil {
			shown, err = s.show(m)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Mount{Mount: m, Image: shown})
	}
	return out, nil
}

// ImageFsInfo returns Unimplemented: the images are in memory.
func (s *images) ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error) {
	if err := s.gate.Begin(ctx, "ImageFsInfo", ""); err != nil {
		return nil, err
	}
	return nil, ErrNoStats
}
