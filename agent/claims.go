package agent

import (
	"context"
	"path/filepath"
	"slices"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/storage/mount"
	"monopod/agent/storage/provision"
	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
	"monopod/apiserver/client/record"
	"monopod/apiserver/process/guard"
)

// volumesDir is where volumes of the node's own provisioner lie.
func (a *Agent) volumesDir() string { return filepath.Join(a.cfg.DataDir, "volumes") }

// provideVolumes makes and removes the volumes of this node, and wakes pods whose
// claims are bound, until ctx ends.
func (a *Agent) provideVolumes(ctx context.Context) {
	p := provision.New(provision.Deps{
		Client: a.Client, Clock: a.Clock, Log: a.log.Named("volumes"),
		Event: func(obj client.Object, eventType, reason, format string, args ...any) {
			a.Recorder.Reference(record.ReferenceTo(obj), eventType, reason, format, args...)
		},
		Busy:   func(namespace, name string) bool { return a.usesClaim(namespace, name, "") },
		Remove: func(path string) error { return mount.RemoveAll(path, a.Mounter) },
	}, provision.Config{Dir: a.volumesDir(), Node: a.cfg.NodeName})
	guard.Together(ctx, provision.NewFeed(a.source.Follower, p, a.wakeForClaim).Run, func(ctx context.Context) {
		if err := p.Run(ctx); err != nil {
			a.log.Error("no volumes are made or removed on this node", zap.Error(err))
		}
	})
}

// wakeForClaim wakes pods that wait for a claim.
func (a *Agent) wakeForClaim(namespace, name string) {
	for _, w := range a.all() {
		if pod := w.Object(); w.Volumes() == nil && pod.Namespace == namespace && slices.Contains(claim.AllOf(pod), name) {
			w.Refresh()
		}
	}
}

// usesClaim: a pod other than except uses the claim, and has not ended.
func (a *Agent) usesClaim(namespace, name string, except types.UID) bool {
	for uid, w := range a.all() {
		if pod := w.Object(); uid != except && !w.Over() && pod.Namespace == namespace && slices.Contains(claim.AllOf(pod), name) {
			return true
		}
	}
	return false
}

// madeFor: the runtime has containers of the pod.
func (a *Agent) madeFor(uid types.UID) bool {
	w := a.all()[uid]
	if w == nil {
		return false
	}
	seen := w.Seen()
	return seen != nil && len(seen.Containers) > 0
}

// freeClaims lets others have the pod's claims, now that its volumes are unmounted.
func (a *Agent) freeClaims(uid types.UID) {
	for _, c := range a.claims.Drop(uid) {
		a.wakeForClaim(c.Namespace, c.Name)
	}
}
