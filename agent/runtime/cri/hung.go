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

// A shim that hangs does not answer, and containerd waits for it in every call about its containers, so its pod can
// never be stopped. A shim that hangs after its pod was removed stays until containerd is restarted.

const (
	// A shim hangs if it does not answer statusAttempts requests. containerd waits two seconds for each answer.
	statusAttempts = 2
	// statusTimeout is the deadline for these requests and for killing the shim.
	statusTimeout = 30 * time.Second
)

// orKillShim calls stop, which stops or removes the container or sandbox id. If stop reaches the deadline of ctx
// because the shim hangs, orKillShim kills the shim: containerd then kills the containers, so that the next call
// succeeds.
func (r *Runtime) orKillShim(ctx context.Context, id string, stop func() error) error {
	err := stop()
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) &&
		!strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		return err // containerd has the same deadline, and may notice it before ctx does
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
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
	for range statusAttempts {
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
			r.config.Log.Warn("the shim of a pod hangs: killing it with the pod's containers",
				zap.String("sandbox", sandbox), zap.Int("pid", s.PID))
			err = errors.Join(err, s.Kill())
		}
	}
	return err
}

const (
	// shimExitTimeout is how long the shim of a removed sandbox has to end by itself. If it cannot be killed, that is
	// retried after delays that grow up to maxShimExitTimeout.
	shimExitTimeout    = 10 * time.Second
	maxShimExitTimeout = 5 * time.Minute
)

// shimReaper kills the shims of removed sandboxes that do not end by themselves.
type shimReaper struct {
	clock clock.Clock
	log   *zap.Logger
	guard *guard.Guard
	wg    sync.WaitGroup

	mu   sync.Mutex      // guards ids
	ids  map[string]bool // of removed sandboxes whose shims may exist
	busy bool            // the goroutine of run exists
}

// add is called when a sandbox was removed. Its shim is watched until it has ended, or ctx ends.
func (s *shimReaper) add(ctx context.Context, id string) {
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

// run returns when no shim is left.
func (s *shimReaper) run(ctx context.Context) {
	retry := backoff.Retry{First: shimExitTimeout, Most: maxShimExitTimeout}
	for {
		s.mu.Lock()
		waiting := maps.Clone(s.ids)
		s.busy = len(waiting) > 0
		s.mu.Unlock()
		if len(waiting) == 0 || !retry.Wait(ctx, s.clock) {
			return
		}
		left := s.kill(waiting)
		if len(left) == 0 {
			retry.Reset()
		}
		s.mu.Lock()
		maps.DeleteFunc(s.ids, func(id string, _ bool) bool { return waiting[id] && !left[id] })
		s.mu.Unlock()
	}
}

// kill kills the shims of these sandboxes and returns the sandboxes that still had one.
func (s *shimReaper) kill(sandboxes map[string]bool) (left map[string]bool) {
	shims, err := FindShims(MatchShims(Namespace, func(id string) bool { return sandboxes[id] }))
	if err != nil {
		s.log.Warn("failed to list the shims of removed pods", zap.Error(err))
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
