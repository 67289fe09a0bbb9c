package stream_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/logs"
	"monopod/agent/node/stream"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
)

// world is a node with one pod, and a runtime that records its calls.
type world struct {
	*testing.T
	dir   *logs.Dir
	none  bool                            // the node has no pod
	seen  atomic.Pointer[status.Observed] // nil: not observed yet
	news  chan struct{}
	known chan struct{}
	asked string
	execs func() ([]runtime.Process, error)
}

func newWorld(t *testing.T, containers ...status.Container) *world {
	t.Helper()
	w := &world{T: t, dir: logs.New(t.TempDir(), zap.NewNop()), news: make(chan struct{}), known: make(chan struct{}),
		execs: func() ([]runtime.Process, error) { return nil, errors.New("no processes") }}
	w.seen.Store(&status.Observed{Containers: containers})
	close(w.known)
	return w
}

func (w *world) streams() *stream.Streams {
	return stream.New(stream.Deps{
		Runtime: w, Clock: clock.RealClock{}, Dir: w.dir, PodsListed: w.known,
		Pod:       func(types.UID) (stream.Pod, bool) { return w, !w.none },
		StaticPod: func(pod *corev1.Pod) *corev1.Pod { return pod },
	})
}

func (w *world) Observed() *status.Observed { return w.seen.Load() }
func (w *world) Changes() <-chan struct{}   { return w.news }
func (w *world) Done() <-chan struct{}      { return nil }

func (w *world) ContainerStatus(context.Context, string) (*cri.ContainerStatus, error) {
	return &cri.ContainerStatus{State: cri.ContainerState_CONTAINER_EXITED}, nil
}

func (w *world) ExecSync(_ context.Context, id string, cmd []string, _ time.Duration) ([]byte, []byte, int32, error) {
	w.asked = id
	if cmd[0] == "false" {
		return nil, []byte("no"), 1, nil
	}
	return []byte("out "), []byte("err"), 0, nil
}

func (w *world) Exec(_ context.Context, req *cri.ExecRequest) (string, error) {
	w.asked = req.ContainerId
	return "http://127.0.0.1/exec", nil
}

func (w *world) Execs(context.Context, string) ([]runtime.Process, error) { return w.execs() }

func (w *world) Attach(_ context.Context, req *cri.AttachRequest) (string, error) {
	w.asked = req.ContainerId
	return "http://127.0.0.1/attach", nil
}

func (w *world) PortForward(_ context.Context, req *cri.PortForwardRequest) (string, error) {
	w.asked = req.PodSandboxId
	return "http://127.0.0.1/forward", nil
}

// written writes a log with one line for an instance of c.
func (w *world) written(attempt uint32, line string) {
	w.Helper()
	path := w.dir.Path(pod(), &status.Container{Name: "c", Attempt: attempt})
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("2026-01-02T03:04:05Z stdout F "+line+"\n"), 0o600); err != nil {
		w.Fatal(err)
	}
}

// pod returns a pod whose container c has run.
func pod() *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	p.Namespace, p.Name, p.UID = "default", "p", "1"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://1"}}
	return p
}

func instance(attempt uint32, state status.State) status.Container {
	return status.Container{ID: string(rune('0' + attempt)), Name: "c", Attempt: attempt, State: state}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	waiting := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: "back-off"}
	}
	initializing := func(p *corev1.Pod) {
		waiting(p)
		p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []corev1.Container{{Name: "app"}}
		p.Status.InitContainerStatuses = p.Status.ContainerStatuses
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app"}}
	}
	for name, c := range map[string]struct {
		has    []status.Container
		opts   corev1.PodLogOptions
		change func(*corev1.Pod)
		want   string // the log or the error
	}{
		"current": {has: []status.Container{instance(2, status.Running), instance(1, status.Exited)}, want: "second\n"},
		"previous": {has: []status.Container{instance(2, status.Running), instance(1, status.Exited)},
			opts: corev1.PodLogOptions{Previous: true}, want: "first\n"},
		"no previous": {has: []status.Container{instance(1, status.Running)},
			opts: corev1.PodLogOptions{Previous: true}, want: `previous terminated container "c" in pod "p" not found`},
		"terminated, waits for restart": {has: []status.Container{instance(1, status.Exited)},
			opts: corev1.PodLogOptions{Previous: true}, change: waiting, want: "first\n"},
		"init container waits for restart": {has: []status.Container{instance(1, status.Exited)},
			opts: corev1.PodLogOptions{Previous: true}, change: initializing, want: "first\n"},
		"not started": {has: []status.Container{instance(1, status.Created)},
			want: `container "c" in pod "p" is waiting to start: ContainerCreating`},
		"waiting":           {change: waiting, want: `container "c" in pod "p" is waiting to start: CrashLoopBackOff`},
		"no such container": {opts: corev1.PodLogOptions{Container: "d"}, want: "container d is not valid for pod p"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.has...)
			w.written(1, "first")
			w.written(2, "second")
			p, opts := pod(), c.opts
			if c.change != nil {
				c.change(p)
			}
			if opts.Container == "" {
				opts.Container = "c"
			}
			var got strings.Builder
			if err := w.streams().Logs(t.Context(), p, &opts, &got); err != nil {
				got.WriteString(err.Error())
			}
			if got.String() != c.want {
				t.Errorf("got %q, want %q", got.String(), c.want)
			}
		})
	}
}

func TestFollowEndsWithTheContainer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, instance(1, status.Exited))
	w.written(1, "all there is")
	var got strings.Builder
	if err := w.streams().Logs(t.Context(), pod(), &corev1.PodLogOptions{Container: "c", Follow: true},
		&got); err != nil ||
		got.String() != "all there is\n" {
		t.Errorf("got %q, %v", got.String(), err)
	}
}

func TestExecAndAttach(t *testing.T) {
	t.Parallel()
	for state, runs := range map[status.State]bool{status.Created: false, status.Running: true, status.Exited: false} {
		w := newWorld(t, instance(3, state))
		exec, err := w.streams().Exec(t.Context(), pod(), &corev1.PodExecOptions{Container: "c"})
		if runs != (err == nil) || runs && (exec.Path != "/exec" || w.asked != "3") || !runs && !apierrors.IsBadRequest(err) {
			t.Errorf("exec in state %v: %v %v", state, exec, err)
		}
		w.asked = ""
		attach, err := w.streams().Attach(t.Context(), pod(), &corev1.PodAttachOptions{Container: "c"})
		if runs != (err == nil) || runs && (attach.Path != "/attach" || w.asked != "3") {
			t.Errorf("attach in state %v: %v %v", state, attach, err)
		}
	}
}

func TestRunInContainer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, instance(3, status.Running))
	if out, err := w.streams().RunInContainer(t.Context(), pod(), "c", []string{"ls"}); err != nil ||
		string(out) != "out err" ||
		w.asked != "3" {
		t.Errorf("output %q of container %s, error %v", out, w.asked, err)
	}
	if _, err := w.streams().RunInContainer(t.Context(), pod(), "c", []string{"false", "x"}); err == nil ||
		err.Error() != "command 'false x' exited with 1: no" {
		t.Errorf("exit code 1: %v", err)
	}
	if _, err := newWorld(t, instance(3, status.Exited)).streams().RunInContainer(t.Context(), pod(), "c",
		[]string{"ls"}); !apierrors.IsBadRequest(err) {
		t.Errorf("in a terminated container: %v", err)
	}
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.streams().PortForward(t.Context(), pod(),
		&corev1.PodPortForwardOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("without a sandbox: %v", err)
	}
	w.seen.Store(&status.Observed{Sandboxes: []status.Sandbox{{ID: "s", Ready: true}}})
	if _, err := w.streams().PortForward(t.Context(), pod(), &corev1.PodPortForwardOptions{}); err != nil ||
		w.asked != "s" {
		t.Errorf("port forward to sandbox %q, error %v", w.asked, err)
	}
	w.none = true
	if _, err := w.streams().PortForward(t.Context(), pod(), &corev1.PodPortForwardOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without a pod: %v", err)
	}
}

// Right after a start, Exec waits for the first list of pods and for the observation of the pod.
func TestPodBeforeFirstList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.known = make(chan struct{})
		w.seen.Store(nil)
		time.AfterFunc(time.Second, func() { close(w.known) })
		time.AfterFunc(3*time.Second, func() {
			w.seen.Store(&status.Observed{Containers: []status.Container{instance(1, status.Running)}})
			close(w.news)
		})
		start := time.Now()
		if _, err := w.streams().Exec(t.Context(), pod(), &corev1.PodExecOptions{Container: "c"}); err != nil ||
			time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		w.known = make(chan struct{}) // never closed
		start = time.Now()
		if _, err := w.streams().Exec(t.Context(), pod(), &corev1.PodExecOptions{Container: "c"}); err != nil ||
			time.Since(start) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
