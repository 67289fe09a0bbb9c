package agent_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// hung is a runtime call that does not return for the first sandbox, container or image it is about.
type hung struct {
	call   string
	once   bool          // only the first call hangs
	answer chan struct{} // closed: the call returns

	mu    sync.Mutex // guards the fields below
	about *string    // nil: not called yet
	times int
}

func (w *world) hang(call string, once bool) *hung {
	h := &hung{call: call, once: once, answer: make(chan struct{})}
	w.hung.Store(h)
	return h
}

func (w *world) block(ctx context.Context, op, id string) {
	if h := w.hung.Load(); h != nil && h.call == op && h.holds(id) {
		select {
		case <-ctx.Done():
		case <-h.answer:
		}
	}
}

func (h *hung) holds(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.about == nil {
		h.about = &id
	}
	if *h.about != id || h.once && h.times > 0 {
		return false
	}
	h.times++
	return true
}

func (h *hung) made() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.about != nil
}

// A call that never returns blocks one pod: others start and end, the process stops at once, and the pod
// continues when the call returns or times out.
func TestHangingCallsTimeOut(t *testing.T) {
	for _, call := range runtimeCalls {
		for _, once := range []bool{false, true} {
			name := call + " returns late"
			if once {
				if call == "PullImage" {
					continue // PullImage has no deadline: containerd watches its progress
				}
				name = call + " times out"
			}
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.create(pod("before")) // pulls the image
					w.until(time.Second, "before", ready)
					h := w.hang(call, once)
					p := probed("p")
					p.Spec.Containers[0].Name, p.Spec.Containers[0].Image = "p", "web:2"
					w.create(p)
					w.othersLive(h)
					w.awaitAnswer(h)
					w.until(5*time.Minute, "p", ready)

					h = w.hang(call, once)
					w.delete("p", 2)
					w.othersLive(h)
					w.awaitAnswer(h)
					w.until(5*time.Minute, "p", gone)

					w.hang(call, false)
					w.create(probed("p"))
					w.after(2 * time.Second)
					w.delete("p", 2)
					w.after(2 * time.Second)
					stopped := time.Now()
					if w.stop(); time.Since(stopped) > time.Second {
						t.Errorf("Run returned %v after the end of its context", time.Since(stopped))
					}
				})
			})
		}
	}
}

// awaitAnswer lets the call return after a while. A call that hangs only once times out.
func (w *world) awaitAnswer(h *hung) {
	if !h.once {
		w.after(10 * time.Minute)
		close(h.answer)
	}
}

// othersLive runs another pod from start to end while the call hangs. If no call hangs yet, no call for the other pod
// hangs either. Calls about all pods may delay every pod.
func (w *world) othersLive(h *hung) {
	w.Helper()
	if w.after(5 * time.Second); !h.made() {
		w.hung.Store(nil)
	}
	limit := 10 * time.Second
	if slices.Contains([]string{"Version", "Status", "ListPodSandbox", "ListContainers", "ListImages"}, h.call) {
		limit = 5 * time.Minute
	}
	w.create(pod("q"))
	w.until(limit, "q", ready)
	w.delete("q", 2)
	w.until(limit, "q", gone)
}
