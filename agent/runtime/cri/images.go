package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs/pkg/errgrpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/images/image"
)

const (
	// Labels by which CRI recognizes its images, and keeps them. containerd 1.6 does
	// not know the second: pin adds it to CRI's answers.
	labelManaged = "io.cri-containerd.image"
	labelPinned  = "io.cri-containerd.pinned"

	DefaultSnapshotter = "overlayfs"
	// noticed is how long CRI may take to list an imported image.
	noticed = 10 * time.Second
)

// ListImages is CRI's.
func (r *Runtime) ListImages(ctx context.Context) ([]*cri.Image, error) {
	resp, err := r.images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return resp.Images, r.pin(ctx, resp.Images...)
}

// ImageStatus is CRI's.
func (r *Runtime) ImageStatus(ctx context.Context, name string) (*cri.Image, error) {
	resp, err := r.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil || resp.Image == nil {
		return nil, err
	}
	return resp.Image, r.pin(ctx, resp.Image)
}

// pin sets Pinned on images with the label.
func (r *Runtime) pin(ctx context.Context, list ...*cri.Image) error {
	pinned, err := r.client.ImageService().List(InNamespace(ctx), fmt.Sprintf("labels.%q==pinned", labelPinned))
	if err != nil {
		return errgrpc.ToGRPC(err)
	}
	names := make(map[string]bool, len(pinned))
	for _, img := range pinned {
		names[img.Name] = true
	}
	if pauses := r.pauses.Load(); pauses != nil { // also one that was there before us
		for _, name := range *pauses {
			names[name] = true
		}
	}
	for _, img := range list {
		for _, tag := range img.RepoTags {
			img.Pinned = img.Pinned || names[tag]
		}
	}
	return nil
}

// PullImage is CRI's.
func (r *Runtime) PullImage(ctx context.Context, name string, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (string, error) {
	resp, err := r.images.PullImage(ctx, &cri.PullImageRequest{
		Image: &cri.ImageSpec{Image: name}, Auth: auth, SandboxConfig: sandbox,
	})
	return resp.GetImageRef(), err
}

// RemoveImage removes every name of the image.
func (r *Runtime) RemoveImage(ctx context.Context, name string) error {
	_, err := r.images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: name}})
	return present(err)
}

// ImportImages also unpacks the images, and returns when CRI sees them.
func (r *Runtime) ImportImages(ctx context.Context, path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := r.importFrom(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", path, err)
	}
	return names, nil
}

func (r *Runtime) importFrom(ctx context.Context, archive io.Reader) ([]string, error) {
	tar, err := compression.DecompressStream(archive)
	if err != nil {
		return nil, err
	}
	defer tar.Close()
	nsCtx, done, err := r.client.WithLease(InNamespace(ctx)) // otherwise unnamed content could be garbage-collected
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	defer func() { _ = done(context.WithoutCancel(nsCtx)) }() // it expires by itself otherwise
	labels := containerd.WithImageLabels(map[string]string{labelManaged: "managed", labelPinned: "pinned"})
	imported, err := r.client.Import(nsCtx, tar, labels)
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	var names []string
	for _, img := range imported {
		if err := r.unpack(nsCtx, img); err != nil {
			return nil, fmt.Errorf("%s: %w", img.Name, errgrpc.ToGRPC(err))
		}
		names = append(names, img.Name)
	}
	return names, nil
}

// unpack creates the image's snapshot and waits until CRI has learned of the image
// from containerd's events.
func (r *Runtime) unpack(ctx context.Context, img images.Image) error {
	full := containerd.NewImage(r.client, img)
	if err := full.Unpack(ctx, r.snapshotter(ctx)); err != nil {
		return err
	}
	config, err := full.Config(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, noticed)
	defer cancel()
	for {
		resp, err := r.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: img.Name}})
		if err != nil || resp.GetImage().GetId() == config.Digest.String() {
			return err
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("CRI does not see the image: %w", err)
		}
	}
}

// snapshotter returns the configured one, or the one that CRI (1.6) reports.
func (r *Runtime) snapshotter(ctx context.Context) string {
	if r.config.Snapshotter != "" {
		return r.config.Snapshotter
	}
	if s := r.settings(ctx).Containerd.Snapshotter; s != "" {
		return s
	}
	return DefaultSnapshotter
}

// settings are the parts of CRI's configuration that matter here. containerd 2.x does
// not report them.
type settings struct {
	SandboxImage string `json:"sandboxImage"`
	Containerd   struct {
		Snapshotter string `json:"snapshotter"`
	} `json:"containerd"`
}

func (r *Runtime) settings(ctx context.Context) (s settings) {
	resp, err := r.pods.Status(ctx, &cri.StatusRequest{Verbose: true})
	if err == nil {
		// This output is meant for humans: missing or unexpected fields stay empty.
		_ = json.Unmarshal([]byte(resp.Info["config"]), &s)
	}
	return s
}

// ensurePause imports our sandbox image under its own name and, for a containerd with
// another configuration, under the configured name unless that image exists.
func (r *Runtime) ensurePause(ctx context.Context) error {
	return r.pause.do(func() error {
		var missing []image.Image
		pauses := slices.Compact([]string{image.PauseRef, r.settings(ctx).SandboxImage})
		r.pauses.Store(&pauses)
		for _, name := range pauses {
			if name == "" {
				continue
			}
			have, err := r.ImageStatus(ctx, name)
			if err != nil {
				return err
			}
			img, err := image.Pause(name)
			if err != nil {
				return err
			}
			if have == nil {
				missing = append(missing, img)
			}
		}
		return r.importPause(ctx, missing)
	})
}

func (r *Runtime) importPause(ctx context.Context, missing []image.Image) error {
	if len(missing) == 0 {
		return nil
	}
	var archive bytes.Buffer
	if err := image.Archive(&archive, missing...); err != nil {
		return err
	}
	if _, err := r.importFrom(ctx, &archive); err != nil {
		return fmt.Errorf("import the sandbox image: %w", err)
	}
	return nil
}
