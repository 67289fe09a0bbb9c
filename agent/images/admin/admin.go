// Package admin manages the images of a running node for admins: it lists, imports, pulls, removes and saves them.
// Handler serves images.Path.
package admin

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/images/pull"
	"monopod/agent/podapi/spec"
	"monopod/agent/runtime"
	"monopod/agent/runtime/oci"
	"monopod/apiserver/kit/images"
)

// Runtime contains the methods of runtime.Runtime that an Admin needs.
type Runtime interface {
	ListImages(ctx context.Context) ([]*cri.Image, error)
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
	RemoveImage(ctx context.Context, image string) error
	ImportArchive(ctx context.Context, archive io.Reader) ([]string, error)
	ExportImages(ctx context.Context, names []string, to io.Writer) error
	Downloads(ctx context.Context) ([]runtime.Download, error)
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
}

// Puller pulls with the credentials of the node.
type Puller interface {
	Pull(ctx context.Context, r pull.Request) (*cri.Image, error)
	Pulls() []string
	Forget(owner string)
	Imported(names []string, err error)
}

// Admin manages the images of a node.
type Admin struct {
	Runtime Runtime
	Puller  Puller
	Changed func()          // is called after images were added or removed
	Removed func(id string) // is called after an image was removed
	// InUse returns the names of images that volumes mount; nil: there are none.
	InUse func() []string
}

// downloads returns the images that are being pulled.
func (s *Admin) downloads(ctx context.Context) (images.Downloads, error) {
	all := images.Downloads{Pulls: s.Puller.Pulls()}
	parts, err := s.Runtime.Downloads(ctx)
	for _, part := range parts {
		all.Downloads = append(all.Downloads, images.Download(part))
	}
	return all, err
}

// List returns the images, sorted by name.
func (s *Admin) List(ctx context.Context) ([]images.Image, error) {
	all, err := s.Runtime.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	containers, err := s.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var mounted []string
	if s.InUse != nil {
		mounted = s.InUse()
	}
	list := make([]images.Image, 0, len(all))
	for _, img := range all {
		shown := describe(img, containers)
		if slices.ContainsFunc(mounted, func(m string) bool { return m == shown.ID || slices.Contains(shown.Names, m) }) {
			shown.Users = append(shown.Users, volumeUsers)
		}
		list = append(list, shown)
	}
	slices.SortFunc(list, func(a, b images.Image) int {
		return cmp.Or(slices.Compare(a.Names, b.Names), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// volumeUsers represents, in the users of an image, the pods whose volumes mount it.
const volumeUsers = "volumes"

// describe converts an image and adds the pods that use it.
func describe(img *cri.Image, containers []*cri.Container) images.Image {
	out := images.Image{ID: img.Id, Names: img.RepoTags, Bytes: int64(img.Size), Pinned: img.Pinned}
	if len(out.Names) == 0 {
		out.Names = img.RepoDigests
	}
	users := map[string]bool{}
	all := slices.Concat([]string{img.Id}, img.RepoTags, img.RepoDigests)
	for _, c := range containers {
		if slices.Contains(all, c.ImageId) || slices.Contains(all, c.ImageRef) ||
			slices.Contains(all, c.GetImage().GetImage()) {
			users[cmp.Or(c.Labels[spec.LabelPodNamespace], "?")+"/"+cmp.Or(c.Labels[spec.LabelPodName], c.Id)] = true
			out.Running = out.Running || c.State == cri.ContainerState_CONTAINER_RUNNING
		}
	}
	out.Users = slices.Sorted(maps.Keys(users))
	return out
}

var resource = schema.GroupResource{Resource: "images"}

// find returns an image by name or ID.
func (s *Admin) find(ctx context.Context, name string) (*cri.Image, error) {
	img, err := s.Runtime.ImageStatus(ctx, fullName(name))
	if err == nil && img == nil {
		err = apierrors.NewNotFound(resource, name)
	}
	return img, err
}

// fullName completes a name: web is docker.io/library/web:latest. It returns anything that is not a name unchanged: it
// may be an ID.
func fullName(name string) string {
	if full, err := reference.ParseDockerRef(name); err == nil && !strings.HasPrefix(name, "sha256:") {
		return full.String()
	}
	return name
}

// Remove removes images with all of their names. It returns an error, and removes nothing, if pods use one of the
// images, unless force is true: these pods keep running, and need a pull when they restart. The sandbox image is never
// removed.
func (s *Admin) Remove(ctx context.Context, names []string, force bool) error {
	list, err := s.List(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, name := range names {
		img, err := s.find(ctx, name)
		if err != nil {
			return err
		}
		if slices.Contains(img.RepoTags, oci.PauseRef) {
			return apierrors.NewConflict(resource, name, errors.New("every pod needs this image"))
		}
		at := slices.IndexFunc(list, func(i images.Image) bool { return i.ID == img.Id })
		if at >= 0 && len(list[at].Users) > 0 && !force {
			return apierrors.NewConflict(resource, name,
				fmt.Errorf("used by %s; delete these pods first, or use force", strings.Join(list[at].Users, ", ")))
		}
		ids = append(ids, img.Id)
	}
	var errs []error
	for _, id := range ids {
		err := s.Runtime.RemoveImage(ctx, id)
		if err == nil {
			s.Removed(id)
		}
		errs = append(errs, err)
	}
	s.Changed()
	return errors.Join(errs...)
}

// Import imports an archive from a stream and returns the names of its images, which are pinned.
func (s *Admin) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	names, err := s.Runtime.ImportArchive(ctx, archive)
	s.Puller.Imported(names, err)
	if wrong := (*oci.WrongPlatform)(nil); errors.As(err, &wrong) {
		if len(names) > 0 {
			s.Changed()
		}
		return nil, apierrors.NewBadRequest(wrong.Error())
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) || status.Code(err) == codes.InvalidArgument ||
		err != nil && slices.ContainsFunc(invalidArchiveMessages,
			func(text string) bool { return strings.Contains(err.Error(), text) }) {
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("not a complete image archive (%v): write it with docker save, skopeo copy or ctr images export", err))
	}
	if err != nil {
		return nil, err
	}
	s.Changed()
	return names, nil
}

// invalidArchiveMessages are containerd's errors for a tar that is not an image archive, and for an incomplete archive.
var invalidArchiveMessages = []string{"unrecognized image format", io.ErrUnexpectedEOF.Error()}

// owner is the owner of the backoff of pulls by admins.
const owner = "images"

// Pull pulls an image with the credentials of the node, also if it is present.
func (s *Admin) Pull(ctx context.Context, name string) (images.Image, error) {
	if _, err := reference.ParseNormalizedNamed(name); err != nil {
		return images.Image{}, apierrors.NewBadRequest(fmt.Sprintf("image name %q: %v", name, err))
	}
	s.Puller.Forget(owner) // a failed pull does not delay the next one
	request := pull.Request{Image: name, Policy: corev1.PullAlways, Owner: owner, Note: func(string, string, string) {}}
	img, err := s.Puller.Pull(ctx, request)
	if err != nil {
		return images.Image{}, err
	}
	s.Changed()
	return describe(img, nil), nil
}

// Save writes images as one archive.
func (s *Admin) Save(ctx context.Context, names []string, to io.Writer) error {
	var full []string
	for _, name := range names {
		img, err := s.find(ctx, name)
		if err != nil {
			return err
		}
		switch tag := fullName(name); {
		case slices.Contains(img.RepoTags, tag):
			full = append(full, tag)
		case len(img.RepoTags) > 0:
			full = append(full, img.RepoTags[0])
		case len(img.RepoDigests) > 0:
			full = append(full, img.RepoDigests[0])
		default:
			return apierrors.NewBadRequest(fmt.Sprintf("image %s has no name", name))
		}
	}
	err := s.Runtime.ExportImages(ctx, full, to)
	if status.Code(err) == codes.Unimplemented {
		return apierrors.NewBadRequest(status.Convert(err).Message())
	}
	return err
}
