package cri_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"monopod/agent/runtime/cri"
)

// A pod with a hung shim can be stopped and removed: a call that times out because the shim does not answer kills the
// shim. A call that times out because the container ignores the signal does not.
func TestHungShim(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importSample()
	sandbox, container := n.runWeb("hung", "-ignore-term")
	n.fetch(sandbox) // until the program ignores SIGTERM
	shims := func() []cri.Shim {
		t.Helper()
		found, err := cri.FindShims(cri.MatchShims(cri.Namespace, func(id string) bool { return id == sandbox }))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	within := func(limit time.Duration, stop func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return stop(ctx)
	}
	stop := func(grace time.Duration) func(context.Context) error {
		return func(ctx context.Context) error { return n.runtime.StopContainer(ctx, container, grace) }
	}
	const short, long = 100 * time.Millisecond, 2 * time.Minute
	if err := within(short, stop(time.Hour)); err == nil {
		t.Error("StopContainer succeeded although the container ignores the signal")
	}
	found := shims()
	if len(found) != 1 || found[0].Empty {
		t.Fatalf("shims: %+v", found)
	}
	if err := syscall.Kill(found[0].PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := within(short, stop(0)); err == nil {
		t.Error("StopContainer succeeded although the shim hangs")
	}
	if err := within(long, stop(0)); err != nil {
		t.Errorf("second StopContainer: %v", err)
	}
	await(t, "the end of the container", func() bool { return !n.running(container) })
	if err := within(long, func(ctx context.Context) error { return n.runtime.StopPodSandbox(ctx, sandbox) }); err != nil {
		t.Error(err)
	}
	if err := within(long,
		func(ctx context.Context) error { return n.runtime.RemovePodSandbox(ctx, sandbox) }); err != nil {
		t.Error(err)
	}
	await(t, "the end of the shim", func() bool { return len(shims()) == 0 })
}
