// Package manual lists, imports and removes the images of a node for people: GET, POST and DELETE of an HTTP path.
package manual

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/images/image"
	"monopod/agent/images/preload"
)

// Runtime is the part of the agent's runtime that lists and removes images.
type Runtime interface {
	// ListContainers also lists containers of other clients.
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
	ListImages(ctx context.Context) ([]*cri.Image, error)
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
	RemoveImage(ctx context.Context, image string) error
}

// Config of the handler; all but InUse is required.
type Config struct {
	Runtime  Runtime
	Archives *preload.Importer
	// InUse returns the names of images that are used other than by containers; may be nil.
	InUse func() []string
	// Changed is called after an image was removed.
	Changed func()
}

// Image is an image of the node.
type Image struct {
	ID         string   `json:"id"`
	Names      []string `json:"names"`
	Size       int64    `json:"size"`       // bytes
	Containers int      `json:"containers"` // that use it, dead or alive
	Needed     bool     `json:"needed"`     // it cannot be removed now: it is in use, or the sandbox image
}

type handler struct{ Config }

// Handler answers GET with a list of images, POST ?name=FILE.tar with the names of the images in the archive that is the
// body, and DELETE ?image=NAME with the archives that still contain the image. It does not authorize.
func Handler(cfg Config) http.Handler {
	h := &handler{cfg}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var out any
		var err error
		switch r.Method {
		case http.MethodGet:
			out, err = h.list(r.Context())
		case http.MethodPost:
			out, err = h.add(r.Context(), r.URL.Query().Get("name"), r.Body)
		case http.MethodDelete:
			out, err = h.remove(r.Context(), r.URL.Query().Get("image"))
		default:
			w.Header().Set("Allow", "GET, POST, DELETE")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), code(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the client may have left
	})
}

var (
	errUnknown = errors.New("not found")
	errNeeded  = errors.New("is needed")
)

func code(err error) int {
	switch {
	case errors.Is(err, errUnknown):
		return http.StatusNotFound
	case errors.Is(err, errNeeded):
		return http.StatusConflict
	case errors.Is(err, preload.ErrArchive):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// list returns the images, the largest first.
func (h *handler) list(ctx context.Context) ([]Image, error) {
	all, err := h.Runtime.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	containers, err := h.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var volumes []string
	if h.InUse != nil {
		volumes = h.InUse()
	}
	out := make([]Image, 0, len(all))
	for _, i := range all {
		one := Image{ID: i.Id, Names: slices.Concat(i.RepoTags, i.RepoDigests), Size: int64(i.Size)}
		is := func(name string) bool { return name == one.ID || slices.Contains(one.Names, name) }
		for _, c := range containers {
			if is(c.ImageId) || is(c.ImageRef) || is(c.GetImage().GetImage()) {
				one.Containers++
			}
		}
		one.Needed = one.Containers > 0 || is(image.PauseRef) || slices.ContainsFunc(volumes, is)
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Image) int { return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// added are the names of the images of an archive.
type added struct {
	Images []string `json:"images"`
}

func (h *handler) add(ctx context.Context, name string, archive io.Reader) (added, error) {
	images, err := h.Archives.Add(ctx, name, archive)
	return added{images}, err
}

// removed are the archives from which the image returns at the next start, because they have other images too.
type removed struct {
	Archives []string `json:"archives"`
}

// remove removes an image with all its names, unless something needs it.
func (h *handler) remove(ctx context.Context, name string) (removed, error) {
	all, err := h.list(ctx)
	if err != nil {
		return removed{}, err
	}
	at := slices.IndexFunc(all, func(i Image) bool {
		return i.ID == name || slices.Contains(i.Names, name) || slices.Contains(i.Names, image.Named(name))
	})
	if name == "" || at < 0 {
		return removed{}, fmt.Errorf("image %q %w on this node", name, errUnknown)
	}
	i := all[at]
	if i.Needed {
		return removed{}, fmt.Errorf("image %s %w: %s", cmp.Or(strings.Join(i.Names, ", "), i.ID), errNeeded, why(i))
	}
	if err := h.Runtime.RemoveImage(ctx, i.ID); err != nil {
		return removed{}, fmt.Errorf("remove image %s: %w", name, err)
	}
	h.Changed()
	remain, err := h.Archives.Forget(ctx, i.Names)
	return removed{remain}, err
}

func why(i Image) string {
	if i.Containers > 0 {
		return fmt.Sprintf("%d containers use it, dead or alive; delete their pods first", i.Containers)
	}
	return "a volume uses it, or every pod does"
}
