package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs/pkg/errgrpc"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
	"monopod/agent/runtime/oci"
)

const (
	// CRI lists only images with the first label, and reports images with the second as pinned. containerd 1.6 does not
	// know the second, so pin adds it to CRI's answers.
	labelManaged = "io.cri-containerd.image"
	labelPinned  = "io.cri-containerd.pinned"

	// DefaultSnapshotter is containerd's default.
	DefaultSnapshotter = "overlayfs"
	// listTimeout is how long CRI may take to list an imported image.
	listTimeout = 10 * time.Second
)

// imageService is the part of a Runtime that manages images. It uses containerd's own API for what CRI lacks: import
// and export.
type imageService struct {
	configuredSnapshotter string // snapshotter for imported images; empty: CRI's
	client                *containerd.Client
	pods                  cri.RuntimeServiceClient
	images                cri.ImageServiceClient
	pause                 once
	pauseNames            atomic.Pointer[[]string] // names of the images that sandboxes run
	flusher               flusher
}

// ListImages is CRI's.
func (i *imageService) ListImages(ctx context.Context) ([]*cri.Image, error) {
	resp, err := i.images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return resp.Images, i.pin(ctx, resp.Images...)
}

// ImageStatus is CRI's.
func (i *imageService) ImageStatus(ctx context.Context, name string) (*cri.Image, error) {
	resp, err := i.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil || resp.Image == nil {
		return nil, err
	}
	return resp.Image, i.pin(ctx, resp.Image)
}

// pin sets Pinned on images with the label.
func (i *imageService) pin(ctx context.Context, list ...*cri.Image) error {
	pinned, err := i.client.ImageService().List(InNamespace(ctx), fmt.Sprintf("labels.%q==pinned", labelPinned))
	if err != nil {
		return errgrpc.ToGRPC(err)
	}
	names := make(map[string]bool, len(pinned))
	for _, img := range pinned {
		names[img.Name] = true
	}
	if pauses := i.pauseNames.Load(); pauses != nil { // also a sandbox image that monopod did not import
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
func (i *imageService) PullImage(ctx context.Context, name string, auth *cri.AuthConfig,
	sandbox *cri.PodSandboxConfig) (string, error) {
	defer i.flusher.schedule() // a failed pull may have unpacked layers, too
	resp, err := i.images.PullImage(ctx, &cri.PullImageRequest{
		Image: &cri.ImageSpec{Image: name}, Auth: auth, SandboxConfig: sandbox,
	})
	return resp.GetImageRef(), err
}

// RemoveImage removes every name of the image.
func (i *imageService) RemoveImage(ctx context.Context, name string) error {
	_, err := i.images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: name}})
	return ignoreNotFound(err)
}

// ImportImages also unpacks the images. It returns when CRI lists them.
func (i *imageService) ImportImages(ctx context.Context, path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// At the first start the sandbox image would be imported at the same time, and containerd locks index.json.
	if err := i.ensurePause(ctx); err != nil {
		return nil, err
	}
	names, err := i.ImportArchive(ctx, f)
	if err != nil {
		return names, fmt.Errorf("import %s: %w", path, err)
	}
	return names, nil
}

// ExportImages writes the platforms of each image that are on this machine: usually only its own.
func (i *imageService) ExportImages(ctx context.Context, names []string, to io.Writer) error {
	options := []archive.ExportOpt{archive.WithSkipMissing(i.client.ContentStore()),
		archive.WithSkipNonDistributableBlobs()}
	store := i.client.ImageService()
	for _, name := range names {
		options = append(options, archive.WithImage(store, name))
	}
	return errgrpc.ToGRPC(i.client.Export(InNamespace(ctx), to, options...))
}

// Downloads returns the blobs that containerd's content store is receiving.
func (i *imageService) Downloads(ctx context.Context) (all []runtime.Download, err error) {
	active, err := i.client.ContentStore().ListStatuses(InNamespace(ctx))
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	for _, part := range active {
		all = append(all, runtime.Download{Ref: part.Ref, Done: part.Offset, Total: part.Total})
	}
	return all, nil
}

// ImportArchive implements runtime.Runtime.
func (i *imageService) ImportArchive(ctx context.Context, from io.Reader) ([]string, error) {
	defer i.flusher.schedule()
	tar, err := compression.DecompressStream(from)
	if err != nil {
		return nil, err
	}
	defer tar.Close()
	nsCtx, done, err := i.client.WithLease(InNamespace(ctx)) // otherwise containerd may garbage-collect unnamed content
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	defer func() { _ = done(context.WithoutCancel(nsCtx)) }() // if that fails, the lease expires
	var all []string                                          // images of the archive
	machine := i.machinePlatform()
	imported, err := i.client.Import(nsCtx, tar, containerd.WithImportPlatform(machine),
		containerd.WithImageLabels(map[string]string{labelManaged: "managed", labelPinned: "pinned"}),
		containerd.WithSkipDigestRef(func(name string) bool { all = append(all, name); return true })) // called for each
	if errors.Is(err, images.ErrEmptyWalk) {
		return nil, wrongPlatform(all, machine.refused)
	}
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	var names, wrong []string
	var has []ocispec.Platform
	for _, img := range imported {
		if ok, found := i.fits(nsCtx, img); !ok {
			if err := i.client.ImageService().Delete(nsCtx, img.Name); err != nil {
				return names, errgrpc.ToGRPC(err)
			}
			wrong, has = append(wrong, img.Name), append(has, found...)
			continue
		}
		if err := i.unpack(nsCtx, img); err != nil {
			return nil, fmt.Errorf("%s: %w", img.Name, errgrpc.ToGRPC(err))
		}
		names = append(names, img.Name)
	}
	if len(wrong) > 0 {
		err := wrongPlatform(wrong, has)
		err.OthersArrived = len(names) > 0
		return names, err
	}
	return names, nil
}

// matcher matches the machine's platform, and collects the platforms that do not match.
type matcher struct {
	platform
	refused []ocispec.Platform
}

// platform has the methods of containerd's platforms.MatchComparer.
type platform interface {
	Match(p ocispec.Platform) bool
	Less(a, b ocispec.Platform) bool
}

func (i *imageService) machinePlatform() *matcher {
	return &matcher{platform: containerd.NewImage(i.client, images.Image{}).Platform()}
}

// Match implements platforms.Matcher.
func (m *matcher) Match(p ocispec.Platform) bool {
	ok := m.platform.Match(p)
	if !ok {
		m.refused = append(m.refused, p)
	}
	return ok
}

// fits reports whether the machine can run an image; it also returns the platforms for which the image is built.
func (i *imageService) fits(ctx context.Context, img images.Image) (bool, []ocispec.Platform) {
	found, err := images.Platforms(ctx, i.client.ContentStore(), img.Target)
	// After an error the image fits: unpack returns the error.
	fits := err != nil || len(found) == 0 || slices.ContainsFunc(found, i.machinePlatform().Match)
	return fits, found
}

func wrongPlatform(names []string, has []ocispec.Platform) *oci.WrongPlatform {
	err := &oci.WrongPlatform{Names: names, Machine: goruntime.GOARCH}
	for _, p := range has {
		err.Has = append(err.Has, architecture(p))
	}
	slices.Sort(err.Has)
	err.Has = slices.Compact(err.Has)
	return err
}

// architecture returns the name of a platform without linux: arm64, arm/v7, or windows/amd64.
func architecture(p ocispec.Platform) string {
	name := p.Architecture
	if p.OS != "linux" {
		name = p.OS + "/" + name
	}
	if p.Variant != "" && name != "arm64" { // arm64 has only the variant v8
		name += "/" + p.Variant
	}
	return name
}

// unpack creates the image's snapshot and waits until CRI lists the image, which it learns from containerd's events.
func (i *imageService) unpack(ctx context.Context, img images.Image) error {
	full := containerd.NewImage(i.client, img)
	if err := full.Unpack(ctx, i.snapshotter(ctx)); err != nil {
		return err
	}
	config, err := full.Config(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	for {
		resp, err := i.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: img.Name}})
		if err != nil || resp.GetImage().GetId() == config.Digest.String() {
			return err
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("CRI does not list the image: %w", err)
		}
	}
}

// snapshotter returns the configured snapshotter, or the one that CRI (1.6) reports.
func (i *imageService) snapshotter(ctx context.Context) string {
	if i.configuredSnapshotter != "" {
		return i.configuredSnapshotter
	}
	if s := i.settings(ctx).Containerd.Snapshotter; s != "" {
		return s
	}
	return DefaultSnapshotter
}

// settings is the part of CRI's configuration that is used here. containerd 2.x does not report it.
type settings struct {
	SandboxImage string `json:"sandboxImage"`
	Containerd   struct {
		Snapshotter string `json:"snapshotter"`
	} `json:"containerd"`
}

func (i *imageService) settings(ctx context.Context) (s settings) {
	resp, err := i.pods.Status(ctx, &cri.StatusRequest{Verbose: true})
	if err == nil {
		// The format of this debug output is not guaranteed: missing or unexpected fields stay empty.
		_ = json.Unmarshal([]byte(resp.Info["config"]), &s)
	}
	return s
}

// ensurePause imports the sandbox image under its own name and, if containerd is configured with another one, under the
// configured name unless that image exists.
func (i *imageService) ensurePause(ctx context.Context) error {
	return i.pause.do(func() error {
		var missing []oci.Image
		pauses := slices.Compact([]string{oci.PauseRef, i.settings(ctx).SandboxImage})
		i.pauseNames.Store(&pauses)
		for _, name := range pauses {
			if name == "" {
				continue
			}
			have, err := i.ImageStatus(ctx, name)
			if err != nil {
				return err
			}
			img, err := oci.Pause(name)
			if err != nil {
				return err
			}
			if have == nil {
				missing = append(missing, img)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		var packed bytes.Buffer
		if err := oci.Archive(&packed, missing...); err != nil {
			return err
		}
		if _, err := i.ImportArchive(ctx, &packed); err != nil {
			return fmt.Errorf("import the sandbox image: %w", err)
		}
		return nil
	})
}
