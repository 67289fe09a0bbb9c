package cri

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"monopod/agent/runtime"
)

// start runs a task in the background, once at a time. The task is repeated until it succeeds; the next start returns
// the error of the last run.
func TestOnce(t *testing.T) {
	t.Parallel()
	var o once
	var started []func()
	outcomes := []error{errors.New("the disk is full"), nil}
	runs := 0
	soon := func() error {
		return o.start(func(do func()) { started = append(started, do) }, func() error {
			return o.do(func() error {
				if err := o.start(func(func()) { t.Error("the task runs twice concurrently") }, nil); err != nil {
					t.Error(err)
				}
				runs++
				return outcomes[runs-1]
			})
		})
	}
	if err := soon(); err != nil || len(started) != 1 || runs != 0 {
		t.Errorf("first start: error %v, %d started, %d runs", err, len(started), runs)
	}
	started[0]()
	if err := soon(); err == nil || len(started) != 2 {
		t.Errorf("start after a failure: error %v, %d started", err, len(started))
	}
	started[1]()
	if err := soon(); err != nil || len(started) != 2 || runs != 2 {
		t.Errorf("start after a success: error %v, %d started, %d runs", err, len(started), runs)
	}
}

func envelope(t *testing.T, topic string, m proto.Message) *types.Envelope {
	t.Helper()
	value, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &types.Envelope{Topic: topic, Event: &anypb.Any{Value: value}, Timestamp: timestamppb.New(time.Unix(1, 0))}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   *types.Envelope
		want runtime.Event
		id   string
		pid  int
	}{
		{envelope(t, topicStart, &events.TaskStart{ContainerID: "c"}),
			runtime.Event{Type: runtime.EventContainerStarted, At: time.Unix(1, 0).UTC()}, "c", 0},
		{envelope(t, topicOOM, &events.TaskOOM{ContainerID: "c"}),
			runtime.Event{Type: runtime.EventContainerOOM, At: time.Unix(1, 0).UTC()}, "c", 0},
		{
			envelope(t, topicExit,
				&events.TaskExit{ContainerID: "c", ID: "c", Pid: 7, ExitStatus: 137, ExitedAt: timestamppb.New(time.Unix(2, 0))}),
			runtime.Event{Type: runtime.EventContainerExited, ExitCode: 137, At: time.Unix(2, 0).UTC()}, "c", 7,
		},
		{ // a process of exec
			envelope(t, topicExit, &events.TaskExit{ContainerID: "c", ID: "exec", ExitStatus: 1}),
			runtime.Event{Type: runtime.EventContainerExited, ExitCode: 1, At: time.Unix(1, 0).UTC()}, "", 0,
		},
	} {
		if e, id, pid, err := translate(tt.in); err != nil || e != tt.want || id != tt.id || pid != tt.pid {
			t.Errorf("%s: %+v, %q, %d, %v; want %+v, %q, %d", tt.in.Topic, e, id, pid, err, tt.want, tt.id, tt.pid)
		}
	}
	if _, _, _, err := translate(&types.Envelope{Topic: topicExit, Event: &anypb.Any{Value: []byte{0xff}}}); err == nil {
		t.Error("translate accepted an invalid event")
	}
}

func TestOwners(t *testing.T) {
	t.Parallel()
	var k owners
	k.markExited("unknown", exit{code: 1})
	k.add("s", owner{sandbox: "s", pod: "p"})
	k.add("c", owner{sandbox: "s", pod: "p"})
	k.markExited("c", exit{code: 3})
	k.add("c", owner{sandbox: "s", pod: "p"}) // listed again
	if e, dead := k.exit("c"); !dead || e.code != 3 {
		t.Errorf("exit %+v, %t; want 3", e, dead)
	}
	if !k.markOOM("c") || k.markOOM("c") || k.markOOM("unknown") {
		t.Error("markOOM must return true only the first time")
	}
	k.add("c", owner{sandbox: "s", pod: "p"})
	if o, _ := k.get("c"); !o.oom {
		t.Error("add removed the mark of the OOM kill")
	}
	if _, dead := k.exit("s"); dead {
		t.Error("the sandbox counts as exited")
	}
	k.forgetSandbox("s")
	if len(k.all) != 0 {
		t.Errorf("owners left: %v", k.all)
	}
}

func TestIgnoreNotFound(t *testing.T) {
	t.Parallel()
	if ignoreNotFound(status.Error(codes.NotFound, "x")) != nil || ignoreNotFound(errors.New("x")) == nil ||
		ignoreNotFound(nil) != nil {
		t.Error("ignoreNotFound must drop only the error NotFound")
	}
}

func TestContainerID(t *testing.T) {
	t.Parallel()
	for cgroup, want := range map[string]string{
		"4f2a": "4f2a", "cri-containerd-4f2a.scope": "4f2a", "podu1": "podu1", "": "", "x.scope": "x",
	} {
		if got := containerID(cgroup); got != want {
			t.Errorf("%s: %s", cgroup, got)
		}
	}
}

func TestUntraversable(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	inner := filepath.Join(top, "a", "b")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		top, a os.FileMode
		want   string
	}{{0o711, 0o750, "a"}, {0o700, 0o711, "."}, {0o700, 0o700, "a"}} {
		if err := errors.Join(os.Chmod(top, tc.top), os.Chmod(filepath.Dir(inner), tc.a)); err != nil {
			t.Fatal(err)
		}
		if got, err := untraversable(inner); got != filepath.Join(top, tc.want) || err != nil {
			t.Errorf("modes %o and %o: %q, error %v, want %q", tc.top, tc.a, got, err, tc.want)
		}
	}
	if got, err := untraversable("/"); got != "" || err != nil {
		t.Errorf("root folder: %q, error %v", got, err)
	}
	if _, err := untraversable(filepath.Join(inner, "none")); err == nil {
		t.Error("no error for a missing folder")
	}
}

// removeResults removes the truncated cached CNI results of a sandbox, or all of them, but none of other sandboxes.
func TestRemoveResults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"monopod-s1-eth0": "", "other-s1-net1": `{"cniVersion":`,
		"monopod-s1-lo": `{"kind":"x"}`, "monopod-s2-eth0": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		onlyTruncated bool
		want          []string
	}{{true, []string{"monopod-s1-lo", "monopod-s2-eth0"}}, {false, []string{"monopod-s2-eth0"}}} {
		if err := removeResults([]string{dir}, "s1", c.onlyTruncated); err != nil {
			t.Fatal(err)
		}
		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		for i := range left {
			left[i] = filepath.Base(left[i])
		}
		if !slices.Equal(left, c.want) {
			t.Errorf("results left: %q, want %q", left, c.want)
		}
	}
}
