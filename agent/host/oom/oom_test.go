package oom

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod/testdata/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	machine = "4,1,10,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,task=stress,pid=42,uid=0\n SUBSYSTEM=x"
	cpuset  = "4,1,10,-;oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=/c,mems_allowed=0,global_oom,task_memcg=/a,task=stress,pid=42,uid=0\n"
	limit   = "6,2,20,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/p,task_memcg=/p/c1,task=we,pid=b,pid=7,uid=0\n"
	killed  = "3,3,30,-;Out of memory: Killed process 42 (stress) total-vm:1kB, anon-rss:1kB\n"
	killed7 = "3,4,40,-;Memory cgroup out of memory: Killed process 7 (we,pid=b) total-vm:1kB\n"
	killed8 = "3,4,41,-;Memory cgroup out of memory: Killed process 8 (sh) total-vm:1kB\n"
	old     = "6,5,50,-;Task in /p/c2 killed as a result of limit of /p\n"
	choose  = "3,6,60,-;Memory cgroup out of memory: Kill process 9 (sh) score 1 or sacrifice child\n"
	oldKill = "3,7,70,-;Killed process 9 (sh) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n"
)

func TestParser(t *testing.T) {
	t.Parallel()
	byLimit := Kill{Process: "we,pid=b", PID: 7, Cgroup: "/p/c1"}
	for name, c := range map[string]struct {
		records []string
		want    []Kill
	}{
		"system OOM": {[]string{machine, killed}, []Kill{{Process: "stress", PID: 42, Cgroup: "/a", System: true}}},
		"unrelated message between": {[]string{machine, "6,9,9,-;eth0: link up\n", killed},
			[]Kill{{Process: "stress", PID: 42, Cgroup: "/a", System: true}}},
		"cpuset":           {[]string{cpuset, killed}, []Kill{{Process: "stress", PID: 42, Cgroup: "/a"}}},
		"memory limit":     {[]string{limit, killed7}, []Kill{byLimit}},
		"memory.oom.group": {[]string{limit, killed7, killed8}, []Kill{byLimit, {Process: "sh", PID: 8}}},
		"both": {[]string{machine, killed, limit, killed7},
			[]Kill{{Process: "stress", PID: 42, Cgroup: "/a", System: true}, byLimit}},
		"without a summary": {[]string{killed7}, []Kill{{Process: "we,pid=b", PID: 7}}},
		"an old kernel": {[]string{old, choose, oldKill, killed8}, []Kill{{Process: "sh", PID: 9, Cgroup: "/p/c2"},
			{Process: "sh", PID: 8}}},
		"invalid records": {[]string{"", ";", "no record", "1,1,1,-;oom-kill:constraint=", "1,1,1,-;Killed process x",
			"1,1,1,-;oom-kill:constraint=A,task_memcg=/a,task=b,pid=c"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p parser
			var got []Kill
			for _, r := range c.records {
				if k, ok := p.line(r); ok {
					got = append(got, k)
				}
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	if got := (Kill{Process: "stress",
		PID: 42}).String(); got != "System OOM encountered, victim process: stress, pid: 42" {
		t.Error(got)
	}
}

// kernel returns a Log of a pipe. The pipe returns single records, like /dev/kmsg, because say waits until the Log has
// read each record.
func kernel(t *testing.T) (l *Log, say func(records ...string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if l, err = Open(path); err != nil {
		t.Fatal(err)
	}
	return l, func(records ...string) {
		for _, r := range records {
			if _, err := w.WriteString(r); err != nil {
				t.Fatal(err)
			}
			l.Killed("none", 0) // reads the record
		}
	}
}

func TestKilledReadsPendingMessages(t *testing.T) {
	t.Parallel()
	l, say := kernel(t)
	defer l.file.Close()
	say(limit, killed7, killed8)
	for name, c := range map[string]struct {
		cgroup string
		pid    int
		want   bool
	}{
		"by its cgroup":  {"c1", 0, true},
		"by its process": {"c9", 8, true},
		"other process":  {"c9", 9, false},
		"no process":     {"c9", 0, false},
	} {
		if got := l.Killed(c.cgroup, c.pid); got != c.want {
			t.Errorf("%s: killed %v", name, got)
		}
	}
	for i := range maxKills {
		say(fmt.Sprintf("3,4,40,-;Memory cgroup out of memory: Killed process %d (web) x\n", 100+i))
	}
	if l.Killed("c1", 0) {
		t.Error("the Log has more than maxKills kills")
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	l, say := kernel(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	one, two := l.Watch(ctx), l.Watch(ctx)
	say(limit, killed7)
	for _, c := range []<-chan Kill{one, two} {
		select {
		case k := <-c:
			if k.Cgroup != "/p/c1" || k.At.IsZero() {
				t.Errorf("the watcher received %+v", k)
			}
		case <-time.After(harness.Bound):
			t.Fatal("the watcher received no kill")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for range one { // until the channel closes
		t.Error("the watcher received the kill twice")
	}
	for range two {
		t.Error("the watcher received the kill twice")
	}
	if l.Killed("c9", 0) {
		t.Error("Killed reports a kill that is not in the log")
	}
}

func TestNoLog(t *testing.T) {
	t.Parallel()
	if _, err := Open(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Fatal("Open succeeded without a log")
	}
	var l *Log
	ctx, cancel := context.WithCancel(t.Context())
	kills := l.Watch(ctx)
	if err := l.Run(ctx); err != nil || l.Killed("c1", 7) {
		t.Errorf("a nil Log reports a kill or fails: %v", err)
	}
	cancel()
	for range kills {
		t.Error("a nil Log sent a kill")
	}
}
