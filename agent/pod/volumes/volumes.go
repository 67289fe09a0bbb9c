// Package volumes has the volumes of one pod: whether they are there, where they lie,
// what containers mount of them.
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

	"monopod/agent/pod/env"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/images"
	"monopod/agent/runtime/abilities"
	"monopod/agent/storage/claims"
	"monopod/agent/storage/volume"
	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
)

// Runtime is what the runtime is asked for.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	Status(ctx context.Context) (*cri.StatusResponse, error)
}

// Tokens are those of service accounts.
type Tokens interface {
	// Due says whether a token of the pod is to be renewed.
	Due(pod types.UID) bool
	Get(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (string, error)
	Forget(pod types.UID)
}

// Claims finds what is behind a pod's claims.
type Claims interface {
	// Volume is the one behind the claim of a pod's volume, once that is bound. ran:
	// containers of the pod were made with it.
	Volume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, ran bool) (*corev1.PersistentVolume, error)
}

// Node is what the volumes of all pods of a node have in common.
type Node struct {
	Dir     string // a folder in it is each pod's
	Client  client.Client
	Runtime Runtime
	Clock   clock.PassiveClock
	Mounter volume.Mounter
	Tokens  Tokens
	Claims  Claims
	// Saw hears of each volume that was set up, or was to be.
	Saw func(plugin string, took time.Duration, err error)
}

// Place is where a volume of a pod lies.
type Place struct {
	Dir, Plugin string
	Claim       string // behind it; empty: none
}

// Volumes are those of one pod. Places and Mounted may be used on any goroutine, all
// else belongs to the worker's.
type Volumes struct {
	node      *Node
	pod       *identity.Pod
	paths     map[string]string // where they lie, once prepared
	stale     bool              // something that they show has changed
	failed    error             // why not all of them are there
	unbound   time.Time         // since when they wait for a claim
	immutable volume.Immutable  // of what they show

	places atomic.Pointer[map[string]Place] // nil: they were never there
}

// New has the volumes of a pod.
func New(node *Node, pod *identity.Pod) *Volumes { return &Volumes{node: node, pod: pod} }

// Dir is the pod's folder.
func (s *Volumes) Dir() string { return filepath.Join(s.node.Dir, string(s.pod.UID)) }

// Doubt has the next Prepare refresh what is there.
func (s *Volumes) Doubt() { s.stale = true }

// Prepare makes the volumes before containers start, and refreshes them when something
// they show has changed. ran: the runtime has containers of the pod.
func (s *Volumes) Prepare(ctx context.Context, facts env.Facts, starting, ran bool) error {
	s.stale = s.stale || s.paths != nil && s.node.Tokens.Due(s.pod.UID)
	if !s.stale && (s.paths != nil || !starting) {
		return nil
	}
	set := s.set(ctx, facts.Pod, ran)
	plugins := map[string]string{}
	set.Saw = func(name, plugin string, took time.Duration, err error) {
		plugins[name] = plugin
		s.node.Saw(plugin, took, err)
	}
	paths, err := set.Prepare(ctx, facts)
	if s.failed = err; err != nil {
		s.report()
		if s.paths == nil {
			return err
		}
		s.stale = false
		s.pod.Log.Warn("volumes not refreshed", zap.Error(err))
		return nil // what is mounted stays as it was
	}
	s.paths, s.stale = paths, false
	s.place(facts.Pod, plugins)
	return nil
}

// set is what works on the pod's volumes.
func (s *Volumes) set(ctx context.Context, pod *corev1.Pod, ran bool) *volume.Set {
	return &volume.Set{
		Dir: s.Dir(), Mounter: s.node.Mounter, Have: s.paths,
		Source: s.immutable.Over(Objects{Context: ctx, Client: s.node.Client, Namespace: pod.Namespace}),
		Claim: func(ctx context.Context, v *corev1.Volume) (*corev1.PersistentVolume, error) {
			return s.node.Claims.Volume(ctx, pod, v, ran)
		},
		Token: func(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error) {
			return s.node.Tokens.Get(ctx, pod, p)
		},
	}
}

// place shows others where the volumes lie.
func (s *Volumes) place(pod *corev1.Pod, plugins map[string]string) {
	out := map[string]Place{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		out[v.Name] = Place{Dir: s.paths[v.Name], Plugin: plugins[v.Name], Claim: claim.Of(pod, v)}
	}
	s.places.Store(&out)
}

// Places are where the volumes lie, by name, as they were last prepared; nil: they never
// were.
func (s *Volumes) Places() map[string]Place {
	if p := s.places.Load(); p != nil {
		return *p
	}
	return nil
}

// Mounted says whether all volumes were there once.
func (s *Volumes) Mounted() bool { return s.places.Load() != nil }

// claimPatience is how long a claim may take to be bound without an event: pods are
// scheduled as soon as it is decided with which volume.
const claimPatience = 10 * time.Second

// report makes an event of each volume that fails to mount.
func (s *Volumes) report() {
	now := s.node.Clock.Now()
	if !errors.Is(s.failed, claims.ErrUnbound) {
		s.unbound = time.Time{}
	} else if s.unbound.IsZero() {
		s.unbound = now
	}
	for _, err := range each(s.failed) {
		if errors.Is(err, claims.ErrUnbound) && now.Sub(s.unbound) < claimPatience {
			continue
		}
		s.pod.Warn("FailedMount", "%v", err)
	}
}

// each is what errors.Join joined.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// Failed is why not all volumes are there; nil: they are, or nobody has tried.
func (s *Volumes) Failed() error { return s.failed }

// Mounts are what a container is to see of the pod's volumes. shown are the IDs of the
// images that image volumes show; handler finds the name of the pod's runtime handler.
func (s *Volumes) Mounts(ctx context.Context, pod *corev1.Pod, c *corev1.Container, vars []env.Var, shown map[string]string, handler func() (string, error)) ([]*cri.Mount, error) {
	can, err := s.features(ctx, c, handler)
	if err == nil && images.Mounts(pod, c) {
		var v *cri.VersionResponse
		v, err = s.node.Runtime.Version(ctx)
		can.ImageSubPaths = abilities.Of(v).ImageSubPaths
	}
	if err != nil {
		return nil, err
	}
	set := s.set(ctx, pod, true)
	set.Images = shown
	return set.Mounts(pod, c, s.paths, vars, can)
}

// features asks the runtime what it can do, if the container wants more than the usual.
func (s *Volumes) features(ctx context.Context, c *corev1.Container, handler func() (string, error)) (volume.Features, error) {
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

// Devices are the block devices that the container gets of the pod's claims.
func (s *Volumes) Devices(pod *corev1.Pod, c *corev1.Container) []*cri.Device {
	return volume.Devices(pod, c, s.paths)
}

// File reads a file of one of the volumes, for the environment of a container.
func (s *Volumes) File(name, path string) ([]byte, error) {
	root, ok := s.paths[name]
	if !ok {
		return nil, fmt.Errorf("the pod has no volume %q", name)
	}
	return volume.Read(root, path, env.MaxFile)
}

// Unmount unmounts the volumes of a pod of which nothing runs any more.
func (s *Volumes) Unmount() error { return s.bare().Unmount() }

// Teardown unmounts the volumes and removes the pod's folder and tokens.
func (s *Volumes) Teardown() error { return s.bare().Teardown() }

// bare is what takes volumes away, for which their contents do not matter.
func (s *Volumes) bare() *volume.Set {
	return &volume.Set{Dir: s.Dir(), Mounter: s.node.Mounter, Have: s.paths}
}

// ForgetTokens is for a pod that is no more.
func (s *Volumes) ForgetTokens() { s.node.Tokens.Forget(s.pod.UID) }
