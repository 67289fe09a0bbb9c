package logind_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod/agent/node/shutdown"
	"monopod/agent/node/shutdown/logind"
	"monopod/agent/node/shutdown/logind/logindtest"
	"monopod/testdata/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node whose pods terminate when the test closes end.
type node struct {
	mu     sync.Mutex // guards the fields below
	did    []string
	events []string
	end    chan struct{} // closed: the pods have terminated
}

func (n *node) does(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.did = append(n.did, what)
}

func (n *node) StopPods(ctx context.Context, p shutdown.Periods) {
	n.does("stop within " + p.Bound().String())
	select {
	case <-ctx.Done():
		n.does("cancelled")
	case <-n.end:
		n.does("stopped")
	}
}

func (n *node) CancelShutdown() { n.does("up") }

func (n *node) event(eventType, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, eventType+" "+reason+": "+message)
}

func (n *node) story() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.did, ", ")
}

func (n *node) eventsWith(part string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Count(strings.Join(n.events, "\n"), part)
}

// until waits for an effect of other processes.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !harness.Eventually(harness.Enough, ok) {
		t.Fatalf("timeout: %s", what)
	}
}

func startBus(t *testing.T) *logindtest.Bus {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	bus, err := logindtest.StartBus(dir)
	if errors.Is(err, logindtest.ErrNoDaemon) {
		t.Skip("skipped: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		bus.Stop()
		os.RemoveAll(dir)
	})
	return bus
}

func startLogind(t *testing.T, bus *logindtest.Bus, most time.Duration) *logindtest.Logind {
	t.Helper()
	l, err := logindtest.Start(bus, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

// run runs a Delay for n until the end of the test or a call of stop.
func run(t *testing.T, bus *logindtest.Bus, n *node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := logind.New(logind.Config{Node: n, Event: n.event, Bus: bus.Address, Periods: shutdown.Default()})
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func holds(l *logindtest.Logind, n int) func() bool {
	return func() bool { return l.Inhibitors() == n }
}

func TestShutdownWaitsForPods(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	l := startLogind(t, bus, time.Minute)
	n := &node{end: make(chan struct{})}
	run(t, bus, n)
	until(t, "inhibitor held", holds(l, 1))
	if asked := strings.Join(l.InhibitorArguments(), "; "); asked != "shutdown of monopod: Pods need time to end (delay)" {
		t.Error("inhibitors: ", asked)
	}
	if err := l.PowerOff(true); err != nil {
		t.Fatal(err)
	}
	until(t, "pods stopped", func() bool { return n.story() == "stop within 30s" })
	if l.Inhibitors() != 1 {
		t.Error("the inhibitor was released before the pods terminated")
	}
	close(n.end)
	until(t, "inhibitor released", holds(l, 0))
	if n.eventsWith("Normal Shutdown: Shutdown manager detected shutdown event") != 1 ||
		n.story() != "stop within 30s, stopped" {
		t.Errorf("calls: %s; events: %q", n.story(), n.events)
	}
}

func TestShutdownIsCancelled(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	l := startLogind(t, bus, time.Minute)
	n := &node{end: make(chan struct{})}
	stop := run(t, bus, n)
	until(t, "inhibitor held", holds(l, 1))
	for _, down := range []bool{true, false} {
		if err := l.PowerOff(down); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "inhibitor held again", func() bool { return len(l.InhibitorArguments()) == 2 && l.Inhibitors() == 1 })
	if n.story() != "stop within 30s, cancelled, up" ||
		n.eventsWith("Shutdown: Shutdown manager detected shutdown cancellation") != 1 {
		t.Errorf("calls: %s; events: %q", n.story(), n.events)
	}
	stop()
	until(t, "inhibitor released", holds(l, 0))
}

func TestLogindWithShorterDelayThanRequested(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	l := startLogind(t, bus, 5*time.Second)
	n := &node{end: make(chan struct{})}
	run(t, bus, n)
	until(t, "event about InhibitDelayMaxSec", func() bool {
		return n.eventsWith("systemd-logind waits 5s for pods to end, they may take 30s: they get less. "+
			"Put InhibitDelayMaxSec=32 below [Login] into /etc/systemd/logind.conf.d/") == 1
	})
	if err := l.PowerOff(true); err != nil {
		t.Fatal(err)
	}
	until(t, "pods stopped within a shorter period", func() bool { return n.story() == "stop within 3s" })
}

func TestInhibitorIsTakenAgainAfterRestartOfLogindOrBus(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	n := &node{end: make(chan struct{})}
	run(t, bus, n)
	until(t, "event without logind", func() bool { return n.eventsWith("Warning ShutdownNotDelayed: ") == 1 })
	l := startLogind(t, bus, time.Minute)
	until(t, "inhibitor held", holds(l, 1))

	l.Stop()
	next := startLogind(t, bus, time.Minute)
	until(t, "inhibitor held at the next logind", holds(next, 1))
	until(t, "inhibitor released at the first logind", holds(l, 0))

	bus.Stop()
	if err := bus.Start(); err != nil {
		t.Fatal(err)
	}
	last := startLogind(t, bus, time.Minute)
	if err := last.PowerOff(true); err != nil { // the Delay may miss this signal
		t.Fatal(err)
	}
	until(t, "pods stopped", func() bool { return n.story() == "stop within 30s" })
}
