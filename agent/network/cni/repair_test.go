package cni

import (
	"context"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"go.uber.org/zap/zaptest"

	"monopod/agent/network/cni/rules"
	"monopod/agent/network/nft"
	"monopod/testdata/harness"
)

// TestTablesAreRestored removes all or some rules while pods run. Keep restores them, including those of host ports.
func TestTablesAreRestored(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t, ranges...)
		a, b := newPod(t, n, "plain"), newPod(t, n, "ported")
		a.add()
		b.add(rules.Port{HostPort: 8081, ContainerPort: 8080, Protocol: "tcp"})
		b.serve(8080)
		before := ruleset(t)
		host, err := netns.Get()
		if err != nil {
			t.Error(err)
			return
		}
		defer host.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var kept sync.WaitGroup
		defer kept.Wait()
		defer cancel()
		kept.Go(func() {
			runtime.LockOSThread() // without UnlockOSThread, the thread exits with the goroutine
			if err := netns.Set(host); err != nil {
				t.Error(err)
				return
			}
			Keep(ctx, n, zaptest.NewLogger(t))
		})
		for _, removal := range [][]string{
			{"flush", "ruleset"}, {"delete", "table", "ip", n.Table}, {"flush", "chain", "ip", n.Table, "postrouting"},
			{"flush", "table", "bridge", n.Table},
		} {
			if out, err := exec.Command("nft", removal...).CombinedOutput(); err != nil {
				t.Errorf("nft %v: %v %s", removal, err, out)
			}
			var after string
			for until := time.Now().Add(harness.Bound); time.Now().Before(until) && after != before; {
				after = ruleset(t)
			}
			if after != before {
				t.Errorf("after nft %v:\n%s\nbefore:\n%s", removal, after, before)
				return
			}
			if _, err := get(n.Gateways()[0].String() + ":8081"); err != nil {
				t.Errorf("connection to the host port after nft %v: %v", removal, err)
			}
		}
	})
}

// TestCompleteTablesAreNotWritten checks that a repair, which also removes rules in the kernel, does not trigger
// another repair.
func TestCompleteTablesAreNotWritten(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		k := repairer{Network: prepare(t, ranges...), log: zaptest.NewLogger(t)}
		if err := k.check(t.Context()); err != nil {
			t.Error(err)
		}
		removals := nft.Watch(t.Context())
		if err := k.check(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case <-removals:
			t.Error("check wrote complete tables")
		default:
		}
		if err := exec.Command("nft", "flush", "ruleset").Run(); err != nil {
			t.Error(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := k.check(ended); err != nil {
			t.Error(err)
		}
		if got := ruleset(t); got != "" {
			t.Errorf("check wrote tables after the end of its context: %s", got)
		}
	})
}

// TestHostPortsAfterAStart checks that Prepare restores host ports whose rules were removed while no process ran.
func TestHostPortsAfterAStart(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t, ranges...)
		p := newPod(t, n, "ported-before")
		p.add(rules.Port{HostPort: 8082, ContainerPort: 8080, Protocol: "tcp"})
		p.serve(8080)
		before := ruleset(t)
		if err := exec.Command("nft", "flush", "ruleset").Run(); err != nil {
			t.Error(err)
		}
		if _, err := Prepare(
			Config{Dir: n.Dir, ID: "test", Executable: "/proc/self/exe", Services: ranges,
				Log: zaptest.NewLogger(t)}); err != nil {
			t.Error(err)
		}
		if after := ruleset(t); after != before {
			t.Errorf("after a start:\n%s\nbefore:\n%s", after, before)
		}
	})
}

// ruleset returns all rules of this network namespace. It sorts the tables.
func ruleset(t *testing.T) string {
	out, err := exec.Command("nft", "list", "ruleset").Output()
	if err != nil {
		t.Error(err)
	}
	tables := strings.SplitAfter(string(out), "\n}\n")
	slices.Sort(tables)
	return strings.Join(tables, "")
}
