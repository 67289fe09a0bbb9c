// Package volumes prepares the volumes of one pod and returns the mounts of its containers.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/images"
	"monopod/agent/podapi/env"
	"monopod/agent/runtime"
	"monopod/agent/storage/claims"
	"monopod/agent/storage/credentials"
	"monopod/agent/storage/csi"
	"monopod/agent/storage/tree"
	"monopod/agent/storage/volume"
	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
)

// Runtime is the part of the container runtime that this package uses.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	Status(ctx context.Context) (*cri.StatusResponse, error)
}

// Tokens provides service account tokens.
type Tokens interface {
	// Due reports whether a token of the pod must be renewed.
	Due(pod types.UID) bool
	Get(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (string, error)
	Forget(pod types.UID)
}

// Certificates provides keys and certificates of pods.
type Certificates interface {
	// Due reports whether Get has more to do for the pod.
	Due(pod types.UID) bool
	Get(ctx context.Context, pod *corev1.Pod, at volume.Source, p *corev1.PodCertificateProjection) (volume.Bundle, error)
	Forget(pod types.UID)
}

// Drivers are the CSI drivers of the node.
type Drivers interface {
	volume.Drivers
	// Due reports whether a volume of the pod must be published again.
	Due(pod types.UID) bool
}

// Claims resolves the PersistentVolumeClaims of a pod.
type Claims interface {
	// Volume returns the PersistentVolume of a pod's volume once its claim is bound. ran means that the runtime has
	// containers of the pod, which use the volume.
	Volume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, ran bool) (*corev1.PersistentVolume, error)
}

// Node contains the dependencies that the volumes of all pods of a node share.
type Node struct {
	Dir     string // contains a folder for each pod
	Client  client.Client
	Runtime Runtime
	Clock   clock.PassiveClock
	Mounter volume.Mounter
	Tokens  Tokens
	// Certificates of projected volumes; nil: none are requested.
	Certificates Certificates
	Claims       Claims
	Data         string  // the data folder
	Drivers      Drivers // CSI drivers; nil: there are none
	// Observe is called after each attempt to set up a volume.
	Observe func(plugin string, took time.Duration, err error)
}

// Location is the folder and the plugin of a mounted volume.
type Location struct {
	Dir, Plugin string
	Claim       string // name of the PersistentVolumeClaim; empty: none
}

// Volumes are the volumes of one pod. Places and Mounted are safe for concurrent use; the worker
// calls all other methods.
type Volumes struct {
	node      *Node
	pod       *identity.Pod
	paths     map[string]string // by volume, once prepared
	stale     bool              // the content of a volume may have changed
	failed    error             // error of the last Prepare
	waiting   time.Time         // start of the wait for a claim or a certificate
	immutable volume.Immutable  // immutable objects in volumes

	locations atomic.Pointer[map[string]Location] // nil: never prepared
}

// New returns the Volumes of a pod.
func New(node *Node, pod *identity.Pod) *Volumes { return &Volumes{node: node, pod: pod} }

// Dir returns the pod's folder.
func (s *Volumes) Dir() string { return filepath.Join(s.node.Dir, string(s.pod.UID)) }

// MarkStale makes the next Prepare refresh the volumes.
func (s *Volumes) MarkStale() { s.stale = true }

// Prepare sets up the volumes before containers start (starting), and refreshes them after their content has changed.
// ran means that the runtime has containers of the pod. A refresh that fails is not an error: Failed returns why, and
// the next Prepare refreshes again.
func (s *Volumes) Prepare(ctx context.Context, facts env.Facts, starting, ran bool) error {
	s.stale = s.stale || s.paths != nil && (s.due() || s.lacks(facts.Pod))
	if !s.stale && (s.paths != nil || !starting) {
		return nil
	}
	set := s.set(ctx, facts.Pod, ran)
	plugins := map[string]string{}
	set.Saw = func(name, plugin string, took time.Duration, err error) {
		plugins[name] = plugin
		s.node.Observe(plugin, took, err)
	}
	paths, err := set.Prepare(ctx, facts)
	if s.failed = err; err != nil {
		s.report()
		if s.paths == nil {
			return err
		}
		s.stale = true // the next Prepare tries again; until then containers keep using the old content
		s.pod.Log.Warn("volumes not refreshed", zap.Error(err))
		return nil
	}
	s.paths, s.stale = paths, false
	locations := map[string]Location{}
	for i := range facts.Pod.Spec.Volumes {
		v := &facts.Pod.Spec.Volumes[i]
		if _, used := paths[v.Name]; !used {
			continue
		}
		locations[v.Name] = Location{Dir: paths[v.Name], Plugin: plugins[v.Name], Claim: claim.Of(facts.Pod, v)}
	}
	s.locations.Store(&locations)
	return nil
}

// lacks reports whether a container, which was added to the running pod, uses a volume that no other did.
func (s *Volumes) lacks(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		_, prepared := s.paths[v.Name]
		return !prepared && volume.Used(pod, v.Name)
	})
}

// due reports whether a token or a certificate must be renewed, or a volume published again.
func (s *Volumes) due() bool {
	return s.node.Tokens.Due(s.pod.UID) || s.node.Certificates != nil && s.node.Certificates.Due(s.pod.UID) ||
		s.node.Drivers != nil && s.node.Drivers.Due(s.pod.UID)
}

// set returns the volume.Set of the pod, with the sources of its contents.
func (s *Volumes) set(ctx context.Context, pod *corev1.Pod, ran bool) *volume.Set {
	objects := Objects{Context: ctx, Client: s.node.Client, Namespace: pod.Namespace}
	set := &volume.Set{
		Dir: s.Dir(), Data: s.node.Data, Mounter: s.node.Mounter, Drivers: s.node.Drivers, Have: s.paths,
		Source: s.immutable.Over(objects), Bundles: objects.Bundles,
		Claim: func(ctx context.Context, v *corev1.Volume) (*corev1.PersistentVolume, error) {
			return s.node.Claims.Volume(ctx, pod, v, ran)
		},
		Token: func(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error) {
			return s.node.Tokens.Get(ctx, pod, p)
		},
	}
	if c := s.node.Certificates; c != nil {
		set.Certificate = func(ctx context.Context, at volume.Source, p *corev1.PodCertificateProjection) (volume.Bundle,
			error) {
			return c.Get(ctx, pod, at, p)
		}
	}
	return set
}

// Locations returns the paths of the volumes by name, as last prepared; nil: never prepared.
func (s *Volumes) Locations() map[string]Location {
	if p := s.locations.Load(); p != nil {
		return *p
	}
	return nil
}

// Mounted reports whether all volumes have been prepared once.
func (s *Volumes) Mounted() bool { return s.locations.Load() != nil }

// eventDelay is how long others may take before an event reports a volume: a pod is scheduled before its volume is
// bound, and its certificate is issued after it was requested.
const eventDelay = 10 * time.Second

// isPending reports whether a volume fails to mount because a claim is not bound, a certificate is not issued or a volume
// is not attached yet.
func isPending(err error) bool {
	return errors.Is(err, claims.ErrUnbound) || errors.Is(err, credentials.ErrPending) || errors.Is(err, csi.ErrAttaching)
}

// report writes an event for each volume that fails to mount.
func (s *Volumes) report() {
	now := s.node.Clock.Now()
	if !isPending(s.failed) {
		s.waiting = time.Time{}
	} else if s.waiting.IsZero() {
		s.waiting = now
	}
	for _, err := range joinedErrors(s.failed) {
		if isPending(err) && now.Sub(s.waiting) < eventDelay {
			continue
		}
		s.pod.Warn("FailedMount", "%v", err)
	}
}

// joinedErrors returns the errors that errors.Join joined.
func joinedErrors(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// Failed returns the error of the last Prepare.
func (s *Volumes) Failed() error { return s.failed }

// Mounts returns the mounts of a container. shown contains the image IDs of image volumes; handler returns the name of
// the pod's runtime handler.
func (s *Volumes) Mounts(ctx context.Context, pod *corev1.Pod, c *corev1.Container, vars []env.Var,
	shown map[string]string, handler func() (string, error)) ([]*cri.Mount, error) {
	can, err := s.features(ctx, c, handler)
	if err == nil && images.Mounts(pod, c) {
		var v *cri.VersionResponse
		v, err = s.node.Runtime.Version(ctx)
		can.ImageSubPaths = runtime.AbilitiesOf(v).ImageSubPaths
	}
	if err != nil {
		return nil, err
	}
	set := s.set(ctx, pod, true)
	set.Images = shown
	return set.Mounts(pod, c, s.paths, vars, can)
}

// features returns the runtime's features if the container needs any.
func (s *Volumes) features(ctx context.Context, c *corev1.Container,
	handler func() (string, error)) (volume.Features, error) {
	unusual := func(m corev1.VolumeMount) bool { return m.RecursiveReadOnly != nil || len(m.BindMountOptions) > 0 }
	if !slices.ContainsFunc(c.VolumeMounts, unusual) {
		return volume.Features{}, nil
	}
	name, err := handler()
	if err != nil {
		return volume.Features{}, err
	}
	resp, err := s.node.Runtime.Status(ctx)
	if err != nil {
		return volume.Features{}, err
	}
	can := volume.Features{Options: resp.GetFeatures().GetMountOptions()}
	for _, h := range resp.GetRuntimeHandlers() {
		if h.Name == name {
			can.RecursiveReadOnly = h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return can, nil
}

// Devices returns the block devices of a container's claims.
func (s *Volumes) Devices(pod *corev1.Pod, c *corev1.Container) []*cri.Device {
	return volume.Devices(pod, c, s.paths)
}

// File reads a file of a volume, for the environment of a container.
func (s *Volumes) File(name, path string) ([]byte, error) {
	root, ok := s.paths[name]
	if !ok {
		return nil, fmt.Errorf("the pod has no volume %q", name)
	}
	return tree.Read(root, path, env.MaxFile)
}

// Unmount unmounts the volumes of a pod whose containers have ended.
func (s *Volumes) Unmount(ctx context.Context) error {
	err := s.setWithoutSources().Unmount(ctx)
	if err != nil && ctx.Err() == nil {
		s.pod.Warn("FailedUnmount", "%v", err)
	}
	return err
}

// Teardown unmounts the volumes and removes the pod's folder and tokens.
func (s *Volumes) Teardown(ctx context.Context) error { return s.setWithoutSources().Teardown(ctx) }

// setWithoutSources returns a volume.Set that can only unmount.
func (s *Volumes) setWithoutSources() *volume.Set {
	return &volume.Set{Dir: s.Dir(), Mounter: s.node.Mounter, Drivers: s.node.Drivers, Have: s.paths}
}

// Forget forgets the tokens and certificates of a removed pod.
func (s *Volumes) Forget() {
	s.node.Tokens.Forget(s.pod.UID)
	if s.node.Certificates != nil {
		s.node.Certificates.Forget(s.pod.UID)
	}
}
