package agent_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"monopod/agent/runtime/fake"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/apiserver/kit/client"
)

// exists is the moment after the runtime has started the container but before it has recorded that.
const exists moment = "exists"

// outage kills the runtime at one call, before or after the call took effect. The runtime restarts a little later;
// containers keep running.
type outage struct {
	w     *world
	point failpoint
	when  moment

	mu     sync.Mutex // guards the fields below
	counts map[string]int
	starts map[string]bool // containers whose start was called
	seen   []failpoint
	down   bool
	met    bool
}

const outageTime = 200 * time.Millisecond

// call is fake.Config.Fail.
func (o *outage) call(op, id string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		return status.Error(codes.Unavailable,
			`connection error: desc = "transport: Error while dialing: connection refused"`)
	}
	if slices.Contains([]string{"Status", "Version", "Events", "ListPodSandbox", "ListContainers", "ListContainerStats"},
		op) {
		return nil // not about one pod, or also called by the test
	}
	if op == "StartContainer" {
		if o.starts[id] { // after an outage, containerd's cleanup of the first start would also remove files of the second
			o.w.Errorf("second start of container %s", id)
		}
		o.starts[id] = true
	}
	o.counts[op]++
	p := failpoint{op, o.counts[op]}
	if !o.met {
		o.seen = append(o.seen, p)
	}
	if p != o.point {
		return nil
	}
	o.met = true
	if o.when == exists {
		return fake.ErrTaskExists
	}
	o.down = true
	time.AfterFunc(outageTime, o.back)
	if o.when == after {
		return fake.ErrLost
	}
	return status.Error(codes.Unavailable, "error reading from server: EOF")
}

func (o *outage) back() {
	o.mu.Lock()
	o.down = false
	o.mu.Unlock()
	o.w.rt.Resync()
}

// moments returns the moments at which an outage makes a difference to the call.
func (o *outage) moments(op string) []moment {
	switch op {
	case "StartContainer":
		return []moment{before, after, exists}
	case "RunPodSandbox", "CreateContainer", "StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox",
		"PullImage":
		return []moment{before, after}
	}
	return []moment{before}
}

// liveThrough runs the story with one outage, and checks that users see no failure.
func (s story) liveThrough(w *world, point failpoint, when moment) *outage {
	o := &outage{w: w, point: point, when: when, counts: map[string]int{}, starts: map[string]bool{}}
	w.failing(o.call)
	s.tell(w)
	w.nothingLeft()
	for _, e := range w.recorded() {
		if reason := strings.Fields(e)[2]; strings.Contains(reason, "Failed") || strings.Contains(reason, "Error") {
			w.Errorf("event: %s", e)
		}
	}
	return o
}

// TestOutages kills the runtime at every call in the life of pods, once each. Every story must hold: an outage
// causes neither a failure nor a restart.
func TestOutages(t *testing.T) {
	stories := slices.DeleteFunc(stories(), func(s story) bool {
		return !slices.Contains([]string{"inits", "hooks", "crashes", "finishes", "unhealthy"}, s.name)
	})
	for _, s := range append(stories, story{name: "pulls", tell: pulls}, story{name: "debugged", tell: debugged}) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var o *outage
			t.Run("none", func(t *testing.T) {
				openWorld(t, func(w *world) { o = s.liveThrough(w, failpoint{}, "") })
			})
			if len(o.seen) < 10 {
				t.Fatalf("the story has only %d calls: %v", len(o.seen), o.seen)
			}
			var missed atomic.Int32
			t.Cleanup(func() { // some calls do not occur in every run
				if int(missed.Load()) > len(o.seen)/5 {
					t.Errorf("%d of %d calls were not reached", missed.Load(), len(o.seen))
				}
			})
			for _, p := range o.seen {
				for _, when := range o.moments(p.op) {
					t.Run(fmt.Sprintf("%s_%s", when, p), func(t *testing.T) {
						inWorld(t, func(w *world) {
							if !s.liveThrough(w, p, when).met {
								missed.Add(1)
							}
						})
					})
				}
			}
		})
	}
}

// pulls pulls its image at each start.
func pulls(w *world) {
	p := pod("a")
	p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	w.create(p)
	w.await("a", ready)
	w.oneOf("a", "c")
	w.delete("a", 5)
	w.await("a", gone)
}

// debugged has an ephemeral container that runs once.
func debugged(w *world) {
	w.create(pod("a"))
	w.await("a", ready)
	w.debug("a", "e", "", "sleep", "1h")
	w.await("a", func(p *corev1.Pod) bool {
		s := p.Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Running != nil && s[0].RestartCount == 0
	})
	w.oneOf("a", "c", "e")
	w.delete("a", 5)
	w.await("a", gone)
}

// A runtime that restarts may fail to list for a moment. The agent removes the sandbox of an interrupted creation soon
// afterwards, and not only at the next relist minutes later.
func TestListFailsAfterOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a"))
		w.until(time.Second, "a", ready)
		list, err := w.rt.ListPodSandbox(w.Context(), nil)
		if err != nil || len(list) != 1 {
			w.Fatal(list, err)
		}
		left := &cri.PodSandboxConfig{Labels: maps.Clone(list[0].Labels),
			Metadata: &cri.PodSandboxMetadata{Name: "b", Namespace: "default", Uid: "b"}}
		left.Labels["io.kubernetes.pod.name"], left.Labels["io.kubernetes.pod.uid"] = "b", "b"
		if _, err := w.rt.RunPodSandbox(w.Context(), left, ""); err != nil {
			w.Fatal(err)
		}
		var lists atomic.Int32
		w.failing(func(op, _ string) error {
			if op == "ListPodSandbox" && lists.Add(1) <= 3 {
				return status.Error(codes.Unknown, "server is not initialized yet")
			}
			return nil
		})
		w.rt.Resync()
		w.after(3 * time.Second)
		if list, err := w.rt.ListPodSandbox(w.Context(), nil); err != nil || len(list) != 1 || list[0].Metadata.Name != "a" {
			w.Error(list, err)
		}
	})
}

// TestStatusOfPodIsRestored checks that the agent restores the statuses of pods after the node lifecycle controller has
// marked them as not ready while the node did not report.
func TestStatusOfPodIsRestored(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a"))
		w.until(10*time.Second, "a", ready)
		for range 2 {
			if _, err := client.Update(w.Context(), w.api, w.get("a"), "status", func(p *corev1.Pod) error {
				for i := range p.Status.Conditions {
					if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
						c.Status = corev1.ConditionFalse
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			w.until(time.Second, "a", ready)
		}
		before := w.get("a").ResourceVersion
		w.after(time.Hour)
		if got := w.get("a").ResourceVersion; got != before {
			t.Errorf("resource version %s, was %s: the agent wrote an unchanged status", got, before)
		}
	})
}
