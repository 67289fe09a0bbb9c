package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"monopod/agent/runtime/fake/archive"
	"monopod/agent/runtime/fake/files"
)

// image never changes but for tags and digests, which Runtime.mu guards.
type image struct {
	*archive.Image
	tags      []string // full names with tag
	digests   []string // full names with digest
	pinned    bool
	pretended bool // pulled from nowhere: its program is not known
}

// ref is what a container status calls its image.
func (i *image) ref() string {
	if len(i.digests) > 0 {
		return i.digests[0]
	}
	return i.ID
}

func (i *image) status() *cri.Image {
	return &cri.Image{
		Id: i.ID, RepoTags: slices.Clone(i.tags), RepoDigests: slices.Clone(i.digests), Size: i.Size, Pinned: i.pinned,
		Spec: &cri.ImageSpec{Image: i.ID},
	}
}

// normalize is the full name of an image: web is docker.io/library/web:latest.
func normalize(name string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "image name %q: %v", name, err)
	}
	return named, nil
}

// image finds an image by ID or by name. The caller holds mu.
func (r *Runtime) image(name string) (*image, bool) {
	if i, ok := r.images[name]; ok {
		return i, true
	}
	if i, ok := r.images["sha256:"+name]; ok {
		return i, true
	}
	named, err := normalize(name)
	if err != nil {
		return nil, false
	}
	for _, i := range r.images {
		if slices.Contains(i.tags, named.String()) || slices.Contains(i.digests, named.String()) {
			return i, true
		}
	}
	return nil, false
}

// addImage adds an image under a name, which it takes away from any other.
func (r *Runtime) addImage(named reference.Named, manifest digest.Digest, i *image) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.images[i.ID]; ok {
		known.pinned = known.pinned || i.pinned
		i = known
	}
	r.images[i.ID] = i
	if _, ok := named.(reference.Digested); !ok {
		r.untag(named.String())
		i.tags = append(i.tags, named.String())
	}
	if d := reference.TrimNamed(named).String() + "@" + manifest.String(); !slices.Contains(i.digests, d) {
		i.digests = append(i.digests, d)
	}
}

func (r *Runtime) untag(name string) {
	for _, i := range r.images {
		i.tags = slices.DeleteFunc(i.tags, func(tag string) bool { return tag == name })
	}
}

// ImportImages reads the names and configs of an archive, and its small layers.
func (r *Runtime) ImportImages(ctx context.Context, file string) ([]string, error) {
	if err := r.begin(ctx, "ImportImages", file); err != nil {
		return nil, err
	}
	found, err := archive.Read(file)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "import %s: %v", file, err)
	}
	var names []string
	for _, entry := range found {
		named, err := normalize(entry.Name)
		if err != nil {
			return nil, err
		}
		r.addImage(named, entry.Manifest, &image{Image: entry.Image, pinned: true})
		names = append(names, named.String())
	}
	return names, nil
}

// PullImage pretends: every well-formed name can be pulled, and Config.Fail decides
// otherwise. Only a registry on loopback is really asked.
func (r *Runtime) PullImage(ctx context.Context, name string, auth *cri.AuthConfig, _ *cri.PodSandboxConfig) (string, error) {
	return answer(ctx, r, "PullImage", name, func() (string, error) { return r.pullImage(ctx, name, auth) })
}

func (r *Runtime) pullImage(ctx context.Context, name string, auth *cri.AuthConfig) (string, error) {
	named, err := normalize(name)
	if err != nil {
		return "", err
	}
	if archive.OnLoopback(named) {
		fetched, manifest, err := archive.Fetch(ctx, named, auth)
		if err != nil {
			return "", err
		}
		r.addImage(named, manifest, &image{Image: fetched})
		return fetched.ID, nil
	}
	if id, ok := r.knownImage(name); ok {
		return id, nil
	}
	manifest := digest.FromString("manifest of " + named.String())
	if d, ok := named.(reference.Digested); ok {
		manifest = d.Digest()
	}
	i := &image{pretended: true, Image: &archive.Image{
		ID: digest.FromString("config of " + named.String()).String(), Size: 1 << 20,
		Config: v1.ImageConfig{Entrypoint: []string{"/web"}, Env: []string{"PATH=/"}, WorkingDir: "/"},
	}}
	r.addImage(named, manifest, i)
	return i.ID, nil
}

func (r *Runtime) knownImage(name string) (id string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.image(name)
	if !ok {
		return "", false
	}
	return i.ID, true
}

// ListImages lists them by ID.
func (r *Runtime) ListImages(ctx context.Context) (list []*cri.Image, err error) {
	if err := r.begin(ctx, "ListImages", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.images)) {
		list = append(list, r.images[id].status())
	}
	return list, nil
}

// ImageStatus finds an image by ID, name or digest.
func (r *Runtime) ImageStatus(ctx context.Context, name string) (*cri.Image, error) {
	if err := r.begin(ctx, "ImageStatus", name); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, ok := r.image(name); ok {
		return i.status(), nil
	}
	return nil, nil
}

// RemoveImage removes an image under all of its names. Containers made from it
// live on.
func (r *Runtime) RemoveImage(ctx context.Context, name string) error {
	if err := r.begin(ctx, "RemoveImage", name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, ok := r.image(name); ok {
		delete(r.images, i.ID)
	}
	return nil
}

// show is what a mount of an image shows: all of it, or a folder.
func (r *Runtime) show(m *cri.Mount) (fs.FS, error) {
	failed := func(code codes.Code, err error) error {
		return status.Errorf(code, "%v: %v", crierrors.ErrImageVolumeMountFailed, err)
	}
	if !m.Readonly || m.HostPath != "" {
		return nil, failed(codes.InvalidArgument, errors.New("the mount of an image has no path on the host, and can only be read"))
	}
	r.mu.Lock()
	img, ok := r.image(m.Image.Image)
	r.mu.Unlock()
	if !ok {
		return nil, failed(codes.NotFound, fmt.Errorf("no image %q", m.Image.Image))
	}
	all, err := img.Tree()
	if err != nil {
		return nil, failed(codes.Unimplemented, err)
	}
	sub, err := archive.Folder(all, m.ImageSubPath)
	if err != nil {
		return nil, failed(codes.Unknown, err)
	}
	return sub, nil
}

// mounts are those of a container. Those that show images want them to be there, as
// containerd does.
func (r *Runtime) mounts(config *cri.ContainerConfig) ([]files.Mount, error) {
	var out []files.Mount
	for _, m := range config.GetMounts() {
		var shown fs.FS
		var err error
		if m.Image != nil {
			shown, err = r.show(m)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, files.Mount{Mount: m, Image: shown})
	}
	return out, nil
}
