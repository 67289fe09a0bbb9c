package provision

import (
	"context"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
	"monopod/apiserver/process/guard"
)

// Feed brings claims and volumes from the API to those who care.
type Feed struct {
	follow.Follower
	p     *Provisioner
	bound func(namespace, name string)

	mu   sync.Mutex // guards what follows
	told bool       // of folders that nobody has
	all  []*corev1.PersistentVolume
	open []*corev1.PersistentVolumeClaim
	seen int // 1: volumes, 2: claims, 3: both
}

// NewFeed brings them to p. bound is told of each claim that is bound, on any
// goroutine.
func NewFeed(f follow.Follower, p *Provisioner, bound func(namespace, name string)) *Feed {
	return &Feed{Follower: f, p: p, bound: bound}
}

// Run follows the API until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	guard.Together(ctx, func(ctx context.Context) {
		f.Follow(ctx, client.Selector{Resource: client.PersistentVolumes}, follow.Handler{List: f.volumes, Event: f.event})
	}, func(ctx context.Context) {
		f.Follow(ctx, client.Selector{Resource: client.PersistentVolumeClaims}, follow.Handler{List: f.claims, Event: f.event})
	})
}

func (f *Feed) volumes(_ context.Context, objs []client.Object) {
	all := make([]*corev1.PersistentVolume, len(objs))
	for i, obj := range objs {
		all[i] = obj.(*corev1.PersistentVolume)
		f.p.Volume(all[i])
	}
	f.leftovers(1, func() { f.all = all })
}

func (f *Feed) claims(_ context.Context, objs []client.Object) {
	all := make([]*corev1.PersistentVolumeClaim, len(objs))
	for i, obj := range objs {
		all[i] = obj.(*corev1.PersistentVolumeClaim)
		f.claim(all[i])
	}
	f.leftovers(2, func() { f.open = all })
}

// leftovers tells, once both lists are known, of folders that nobody has.
func (f *Feed) leftovers(which int, keep func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told {
		return
	}
	keep()
	if f.seen |= which; f.seen != 3 {
		return
	}
	names, err := f.p.Leftovers(f.all, f.open)
	if err != nil {
		f.Log.Warn("cannot look for folders that no volume stands for", zap.Error(err))
	}
	if len(names) > 0 {
		f.Log.Warn("folders that no PersistentVolume stands for are left as they are", zap.String("dir", f.p.Dir), zap.Strings("folders", names))
	}
	f.told, f.all, f.open = true, nil, nil
}

func (f *Feed) event(_ context.Context, typ watch.EventType, obj client.Object) {
	if typ == watch.Deleted {
		return
	}
	switch obj := obj.(type) {
	case *corev1.PersistentVolume:
		f.p.Volume(obj)
	case *corev1.PersistentVolumeClaim:
		f.claim(obj)
	}
}

// claim wakes the provisioner, and the pods that can have their volume now.
func (f *Feed) claim(c *corev1.PersistentVolumeClaim) {
	f.p.Claim(c)
	if c.Status.Phase == corev1.ClaimBound {
		f.bound(c.Namespace, c.Name)
	}
}
