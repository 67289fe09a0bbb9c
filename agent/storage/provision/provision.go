// Package provision makes volumes for the claims of storage classes whose provisioner
// is monopod.io/local, lets them grow, and removes them: each is a folder on this
// node, named after its volume.
//
//   - queue: what has to be looked at, one at a time, and again later what failed.
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
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
)

// Deps of a Provisioner; all are required.
type Deps struct {
	Client client.Client
	Clock  clock.Clock
	Log    *zap.Logger
	// Event tells of a claim or a volume.
	Event func(obj client.Object, eventType, reason, format string, args ...any)
	// Busy says that a pod on this node still uses the claim, though the API may know
	// of none any more.
	Busy func(namespace, claim string) bool
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
	queue queue
	told  map[string]string // of claims that get no volume: why; run's own
}

// New prepares a provisioner; Run does the work.
func New(deps Deps, cfg Config) *Provisioner {
	return &Provisioner{Deps: deps, Config: cfg, queue: newQueue(), told: map[string]string{}}
}

// Claim tells of a claim that is new or has changed. It does not block.
func (p *Provisioner) Claim(c *corev1.PersistentVolumeClaim) {
	if p.concerns(c) {
		p.queue.add(task{namespace: c.Namespace, name: c.Name})
	}
}

// Volume tells of a volume that is new or has changed. It does not block.
func (p *Provisioner) Volume(v *corev1.PersistentVolume) {
	if p.mine(v) {
		p.queue.add(task{name: v.Name})
	}
}

// mine: the volume was made here.
func (p *Provisioner) mine(v *corev1.PersistentVolume) bool {
	return v.Annotations[claim.ProvisionedBy] == claim.Provisioner && v.Spec.Local != nil && v.Spec.Local.Path == p.path(v.Name) &&
		equality.Semantic.DeepEqual(v.Spec.NodeAffinity, p.affinity())
}

func (p *Provisioner) path(volume string) string { return filepath.Join(p.Dir, volume) }

// Run works until ctx ends.
func (p *Provisioner) Run(ctx context.Context) error {
	if err := p.open(); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	for {
		t, ok := p.queue.next(ctx, p.Clock)
		if !ok {
			return nil
		}
		err := p.do(ctx, t)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errAnother) && !apierrors.IsNotFound(err) {
			p.Log.Warn("volume not handled", zap.String("namespace", t.namespace), zap.String("name", t.name), zap.Error(err))
			p.queue.again(t, p.Clock.Now())
			continue
		}
		p.queue.forget(t)
	}
}

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

func (p *Provisioner) do(ctx context.Context, t task) error {
	if t.namespace == "" {
		v, err := client.Get[*corev1.PersistentVolume](ctx, p.Client, "", t.name)
		if err != nil {
			return err
		}
		return p.volume(ctx, v)
	}
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, p.Client, t.namespace, t.name)
	if err != nil {
		delete(p.told, t.String())
		return err
	}
	return p.claim(ctx, c)
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
