// Package provision makes volumes for the claims of storage classes whose provisioner
// is monopod.io/local, lets them grow, and removes them: each is a folder on this
// node, named after its volume.
//
//   - claim: a folder and a PersistentVolume for a claim; more room for it.
//   - volume: the end of a volume: its content first, then its object.
//
// A folder is on the disk before its object is in the API, and gone before that goes,
// so that whatever cuts it short is done again. Folders that no volume stands for
// are never removed: they are told of.
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

	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
	"monopod/apiserver/follow"
)

// Deps of a Provisioner; all are required.
type Deps struct {
	Client  client.Client
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics *follow.Metrics
	// Event tells of a claim or a volume.
	Event func(obj client.Object, eventType, reason, format string, args ...any)
	// Busy says that a pod on this node still uses the claim, though the API may know
	// of none any more.
	Busy func(namespace, claim string) bool
	// Bound is called for each change of a claim that is bound, on any goroutine.
	Bound func(namespace, claim string)
	// Remove removes a folder with all in it; it follows no symlink and does not
	// remove through mounts. What is not there is no error.
	Remove func(path string) error
}

// Config says where volumes go.
type Config struct {
	Dir  string // absolute; the folders lie in it
	Node string // this node
}

// Provisioner makes and removes the volumes of one node.
type Provisioner struct {
	Deps
	Config
	told map[task]string // of claims that get no volume: why; reconcile's own
}

// New prepares a provisioner; Run does the work.
func New(deps Deps, cfg Config) *Provisioner {
	return &Provisioner{Deps: deps, Config: cfg, told: map[task]string{}}
}

// task is a claim, or a volume, which has no namespace; the zero one is the start.
type task = follow.Key

// A task that failed is tried again after a second, twice that, and so on up to five minutes.
const (
	retryFirst = time.Second
	retryMax   = 5 * time.Minute
)

// Run works until ctx ends.
func (p *Provisioner) Run(ctx context.Context) error {
	if err := p.open(); err != nil {
		p.Log.Error("no volumes are made on this node", zap.Error(err))
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
	if v, ok := new.(*corev1.PersistentVolume); ok && p.mine(v) {
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
	if !p.concerns(c) {
		return nil
	}
	return []task{follow.KeyOf(c)}
}

// mine: the volume was made here.
func (p *Provisioner) mine(v *corev1.PersistentVolume) bool {
	return v.Annotations[claim.ProvisionedBy] == claim.Provisioner && v.Spec.Local != nil && v.Spec.Local.Path == p.path(v.Name) &&
		equality.Semantic.DeepEqual(v.Spec.NodeAffinity, p.affinity())
}

func (p *Provisioner) path(volume string) string { return filepath.Join(p.Dir, volume) }

// folderMode is of the folder of the folders: those are open to all who get there.
const folderMode = 0o700

// open makes the folder of the folders, for the disk to keep.
func (p *Provisioner) open() error {
	if _, err := os.Stat(p.Dir); err == nil {
		return os.Chmod(p.Dir, folderMode)
	}
	if err := os.MkdirAll(p.Dir, folderMode); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(p.Dir))
}

// errAnother ends a write that is about another object of the same name.
var errAnother = errors.New("another has its name")

func (p *Provisioner) reconcile(ctx context.Context, t task) (time.Duration, error) {
	err := p.do(ctx, t)
	if errors.Is(err, errAnother) || apierrors.IsNotFound(err) {
		err = nil
	}
	return 0, err
}

func (p *Provisioner) do(ctx context.Context, t task) error {
	switch {
	case t == task{}:
		return p.leftovers(ctx)
	case t.Namespace == "":
		v, err := client.Get[*corev1.PersistentVolume](ctx, p.Client, "", t.Name)
		if err != nil {
			return err
		}
		return p.volume(ctx, v)
	}
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, p.Client, t.Namespace, t.Name)
	if err != nil {
		delete(p.told, t)
		return err
	}
	return p.claim(ctx, c)
}

// leftovers reports folders that nobody has.
func (p *Provisioner) leftovers(ctx context.Context) error {
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
		p.Log.Warn("folders that no PersistentVolume stands for are left as they are", zap.String("dir", p.Dir), zap.Strings("folders", names))
	}
	return err
}

// Leftovers are the folders that none of the volumes and claims stands for.
func (p *Provisioner) Leftovers(volumes []*corev1.PersistentVolume, claims []*corev1.PersistentVolumeClaim) ([]string, error) {
	entries, err := os.ReadDir(p.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), deep)
		if !slices.ContainsFunc(volumes, func(v *corev1.PersistentVolume) bool { return v.Name == name }) &&
			!slices.ContainsFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return nameFor(c) == name }) {
			out = append(out, e.Name())
		}
	}
	return out, err
}
