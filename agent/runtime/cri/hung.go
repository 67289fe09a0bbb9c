package cri

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"go.uber.org/zap"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
)

// A shim that hangs answers no call, and containerd waits for it with every call about its containers: without help,
// its pod could never be stopped. A shim that hangs when its pod is already removed would stay until containerd is
// started again.

const (
	// answering is how often a shim is asked whether it hangs, and asking how long all of that may take: containerd
	// waits two seconds for each answer.
	answering = 2
	asking    = 30 * time.Second
)

// stopped calls stop, which stops what has this ID. If that takes until the deadline of ctx because the shim hangs, the
// shim is killed: containerd then kills the containers, so that the next call succeeds.
func (r *Runtime) stopped(ctx context.Context, id string, stop func() error) error {
	err := stop()
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) &&
		!strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		return err // of containerd, which has the same deadline and may be the first to notice it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), asking)
	defer cancel()
	if r.hangs(ctx, id) {
		err = errors.Join(err, r.endShim(ctx, id))
	}
	return err
}

// hangs reports whether the shim of a container does not answer.
func (r *Runtime) hangs(ctx context.Context, id string) bool {
	ctx = InNamespace(ctx)
	c, err := r.client.LoadContainer(ctx, id)
	if err != nil {
		return false
	}
	task, err := c.Task(ctx, nil)
	for range answering {
		if err != nil {
			return false
		}
		var s containerd.Status
		if s, err = task.Status(ctx); err == nil && s.Status != containerd.Unknown {
			return false
		}
	}
	return err == nil
}

// endShim kills the shim of a container or sandbox.
func (r *Runtime) endShim(ctx context.Context, id string) error {
	sandbox := id
	list, err := r.ListContainers(ctx, &cri.ContainerFilter{Id: id})
	if err != nil {
		return err
	}
	if len(list) == 1 {
		sandbox = list[0].PodSandboxId
	}
	shims, err := FindShims(MatchShims(Namespace, func(of string) bool { return of == sandbox }))
	if err != nil {
		return err
	}
	for _, s := range shims {
		if !s.Helper {
			r.config.Log.Warn("the shim of a pod hangs: killing it with the pod's containers", zap.String("sandbox", sandbox),
				zap.Int("pid", s.PID))
			err = errors.Join(err, s.Kill())
		}
	}
	return err
}

const (
	// leaving is how long the shim of a removed sandbox has to end by itself; one that cannot be killed is tried again
	// at a growing distance.
	leaving     = 10 * time.Second
	lastLeaving = 5 * time.Minute
)

// remains ends the shims of removed sandboxes that do not end by themselves.
type remains struct {
	clock clock.Clock
	log   *zap.Logger
	guard *guard.Guard
	wg    sync.WaitGroup

	mu   sync.Mutex      // guards ids
	ids  map[string]bool // of removed sandboxes whose shims may exist
	busy bool            // run runs
}

// removed is called when a sandbox was removed, until ctx ends.
func (s *remains) removed(ctx context.Context, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	s.ids[id] = true
	if !s.busy && ctx.Err() == nil {
		s.busy = true
		s.guard.Go(&s.wg, "shims", func() { s.guard.Keep(ctx, s.clock, "shims", func() { s.run(ctx) }) })
	}
}

// run runs until all of them are gone.
func (s *remains) run(ctx context.Context) {
	retry := backoff.Retry{First: leaving, Most: lastLeaving}
	for {
		s.mu.Lock()
		waiting := maps.Clone(s.ids)
		s.busy = len(waiting) > 0
		s.mu.Unlock()
		if len(waiting) == 0 || !retry.Wait(ctx, s.clock) {
			return
		}
		left := s.end(waiting)
		if len(left) == 0 {
			retry.Reset()
		}
		s.mu.Lock()
		maps.DeleteFunc(s.ids, func(id string, _ bool) bool { return waiting[id] && !left[id] })
		s.mu.Unlock()
	}
}

// end kills the shims of these sandboxes and returns those that still had one.
func (s *remains) end(sandboxes map[string]bool) (left map[string]bool) {
	shims, err := FindShims(MatchShims(Namespace, func(id string) bool { return sandboxes[id] }))
	if err != nil {
		s.log.Warn("failed to look for shims that hang", zap.Error(err))
		return sandboxes
	}
	left = map[string]bool{}
	for _, found := range shims {
		left[found.ID] = true
		if !found.Empty || found.Helper {
			continue
		}
		s.log.Warn("the shim of a removed pod does not end: killing it", zap.String("sandbox", found.ID),
			zap.Int("pid", found.PID))
		if err := found.Kill(); err != nil {
			s.log.Warn("failed to kill a shim", zap.Error(err))
		}
	}
	return left
}
