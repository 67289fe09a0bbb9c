// Package provision creates, expands and removes the volumes of storage classes with the provisioner monopod.io/local:
// each is a folder on this node with the volume's name.
//
//   - claim.go: creates a folder and a PersistentVolume for a claim, and expands them
//   - volume.go: removes a volume: its content first, then its object
//
// A folder is created before its object, and removed before the object, so that an interrupted step is repeated.
// Folders without a volume are never removed, only reported.
package provision

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Deps are the dependencies of a Provisioner; all are required.
type Deps struct {
	Client  client.Client
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics *follow.Metrics
	// Event writes an event about a claim or a volume.
	Event func(obj client.Object, eventType, reason, format string, args ...any)
	// Busy reports whether a pod on this node uses the claim, also if the pod was already deleted from the API.
	Busy func(namespace, claim string) bool
	// Bound is called for each change of a bound claim, on any goroutine.
	Bound func(namespace, claim string)
	// Remove removes a folder with its content. It must not follow symlinks or remove content of mounts. A missing folder
	// is not an error.
	Remove func(path string) error
}

// Config configures a Provisioner.
type Config struct {
	Dir  string // absolute path of the volumes' folders
	Node string // this node
}

// Provisioner creates and removes the volumes of one node.
type Provisioner struct {
	Deps
	Config
	reported map[task]string // claims without a volume, and the reported reason; used by reconcile only
}

// New returns a Provisioner; Run starts it.
func New(deps Deps, cfg Config) *Provisioner {
	return &Provisioner{Deps: deps, Config: cfg, reported: map[task]string{}}
}

// task is the key of a claim, or of a volume, which has no namespace; the zero value is the start.
type task = follow.Key

// A failed task is retried after one second, doubling up to five minutes.
const (
	retryFirst = time.Second
	retryMax   = 5 * time.Minute
)

// Run works until ctx ends.
func (p *Provisioner) Run(ctx context.Context) error {
	if err := p.open(); err != nil {
		p.Log.Error("failed to create the folder of volumes: this node provisions none", zap.Error(err))
	}
	return follow.New(follow.Deps{Client: p.Client, Clock: p.Clock, Log: p.Log, Metrics: p.Metrics}, follow.Config[task]{
		Name: "provisioner", Start: []task{{}}, MinRetry: retryFirst, MaxRetry: retryMax, Reconcile: p.reconcile,
		Sources: []follow.Source[task]{
			{Selector: client.Selector{Resource: client.PersistentVolumes}, Keys: follow.Plain(p.onVolume)},
			{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: follow.Plain(p.onClaim)},
		},
	}).Run(ctx)
}

func (p *Provisioner) onVolume(_, new client.Object) []task {
	if v, ok := new.(*corev1.PersistentVolume); ok && p.isOurs(v) {
		return []task{{Name: v.Name}}
	}
	return nil
}

func (p *Provisioner) onClaim(_, new client.Object) []task {
	c, ok := new.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	if c.Status.Phase == corev1.ClaimBound {
		p.Bound(c.Namespace, c.Name)
	}
	if p.mustProvision(c) || c.Spec.VolumeName == nameFor(c) && mustExpand(c) {
		return []task{follow.KeyOf(c)}
	}
	return nil
}

// isOurs reports whether the volume is on this node.
func (p *Provisioner) isOurs(v *corev1.PersistentVolume) bool {
	return v.Annotations[claim.ProvisionedBy] == claim.Provisioner && v.Spec.Local != nil &&
		claim.WithLocalPath(v, p.Dir).Spec.Local.Path == p.path(v.Name) &&
		equality.Semantic.DeepEqual(v.Spec.NodeAffinity, p.affinity())
}

func (p *Provisioner) path(volume string) string { return filepath.Join(p.Dir, volume) }

// folderMode is the mode of the parent folder. It denies access, because every user may write to the volumes' folders.
const folderMode = 0o700

// open creates the parent folder and flushes it to the disk.
func (p *Provisioner) open() error {
	if _, err := os.Stat(p.Dir); err == nil {
		return os.Chmod(p.Dir, folderMode)
	}
	if err := os.MkdirAll(p.Dir, folderMode); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(p.Dir))
}

// errReplaced reports that another object has the name now.
var errReplaced = errors.New("the object was replaced")

func (p *Provisioner) reconcile(ctx context.Context, t task) (time.Duration, error) {
	err := p.do(ctx, t)
	if errors.Is(err, errReplaced) || apierrors.IsNotFound(err) {
		err = nil
	}
	return 0, err
}

func (p *Provisioner) do(ctx context.Context, t task) error {
	switch {
	case t == task{}:
		return p.reportLeftovers(ctx)
	case t.Namespace == "":
		v, err := client.Get[*corev1.PersistentVolume](ctx, p.Client, "", t.Name)
		if err != nil {
			return err
		}
		return p.volume(ctx, v)
	}
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, p.Client, t.Namespace, t.Name)
	if err != nil {
		delete(p.reported, t)
		return err
	}
	switch {
	case p.mustProvision(c):
		return p.provision(ctx, c)
	case mustExpand(c):
		return p.expand(ctx, c)
	}
	return nil
}

// reportLeftovers logs the folders without a volume or claim.
func (p *Provisioner) reportLeftovers(ctx context.Context) error {
	volumes, err := client.List[*corev1.PersistentVolume](ctx, p.Client, client.Selector{})
	if err != nil {
		return err
	}
	claims, err := client.List[*corev1.PersistentVolumeClaim](ctx, p.Client, client.Selector{})
	if err != nil {
		return err
	}
	names, err := p.Leftovers(volumes, claims)
	if len(names) > 0 {
		p.Log.Warn("folders without a PersistentVolume are kept", zap.String("dir", p.Dir), zap.Strings("folders", names))
	}
	return err
}

// Leftovers returns the folders that belong to none of the volumes and claims.
func (p *Provisioner) Leftovers(volumes []*corev1.PersistentVolume,
	claims []*corev1.PersistentVolumeClaim) ([]string, error) {
	entries, err := os.ReadDir(p.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), movedSuffix)
		if !slices.ContainsFunc(volumes, func(v *corev1.PersistentVolume) bool { return v.Name == name }) &&
			!slices.ContainsFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return nameFor(c) == name }) {
			out = append(out, e.Name())
		}
	}
	return out, err
}
