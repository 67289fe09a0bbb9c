package runtimetest

import (
	"context"
	"testing"
	"time"

	"monopod/agent/runtime"
)

func testEvents(t *testing.T, env Env) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := env.Runtime.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := newPod(t, env)
	id := p.run(p.container("sleep", "20ms", "exit", "3"))

	p.checkEvent(next(t, events, id), runtime.EventContainerStarted, id)
	exit := next(t, events, id)
	p.checkEvent(exit, runtime.EventContainerExited, id)
	if exit.ExitCode != 3 {
		t.Errorf("exit code %d", exit.ExitCode)
	}
	if s := p.awaitExit(id); s.ExitCode != 3 {
		t.Errorf("status after the event: %v", s)
	}
	if err := env.Runtime.StopPodSandbox(ctx, p.id); err != nil {
		t.Fatal(err)
	}
	for e := range within(t, events) {
		if e.SandboxID == p.id && e.Type == runtime.EventSandboxExited {
			break
		}
	}
	cancel()
	for range within(t, events) { // until the channel closes
	}
}

func (p *pod) checkEvent(e runtime.Event, want runtime.EventType, id string) {
	p.Helper()
	if e.Type != want || e.SandboxID != p.id || e.ContainerID != id {
		p.Errorf("event %+v, want type %d of container %s", e, want, id)
	}
	if e.PodUID != "" && e.PodUID != p.config.Metadata.Uid {
		p.Errorf("event of pod %q, want %q", e.PodUID, p.config.Metadata.Uid)
	}
	if age := time.Since(e.At); age < -time.Second || age > patience {
		p.Errorf("event is %v old", age)
	}
}

// next returns the next event about a container. It skips events of other tests.
func next(t *testing.T, events <-chan runtime.Event, container string) runtime.Event {
	t.Helper()
	for e := range within(t, events) {
		if e.ContainerID == container {
			return e
		}
	}
	t.Fatal("the channel of events closed")
	return runtime.Event{}
}

// within ranges over events until the channel closes, and fails if none arrives in time.
func within(t *testing.T, events <-chan runtime.Event) func(yield func(runtime.Event) bool) {
	t.Helper()
	return func(yield func(runtime.Event) bool) {
		for {
			select {
			case e, ok := <-events:
				if !ok || !yield(e) {
					return
				}
			case <-time.After(patience):
				t.Fatal("timeout: no event")
			}
		}
	}
}
