package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent"
	"monopod/agent/runtime"
	"monopod/apiserver/kit/client"
)

// radio is a runtime whose events the test controls.
type radio struct {
	runtime.Runtime
	events chan runtime.Event
}

func (r radio) Events(context.Context) (<-chan runtime.Event, error) { return r.events, nil }

func (w *world) nodeCondition() corev1.NodeCondition {
	w.Helper()
	node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
	if err != nil {
		w.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	w.Fatal("no condition Ready")
	return corev1.NodeCondition{}
}

// The agent reports an unavailable runtime at once and fails liveness after three minutes. Containers keep their state
// when the runtime is back.
func TestRuntimeLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop()
		r := radio{w.rt, make(chan runtime.Event)}
		w.alter = func(d *agent.Deps) { d.Runtime = r }
		w.startAgent()
		w.create(pod("a"))
		w.until(time.Second, "a", ready)
		before := w.get("a")

		w.failing(func(string, string) error { return grpcstatus.Error(codes.Unavailable, "no such socket") })
		r.events <- runtime.Event{Type: runtime.EventLost}
		w.after(100 * time.Millisecond)
		if c := w.nodeCondition(); c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "no such socket") {
			t.Errorf("node condition without the runtime: %+v", c)
		}
		if err := w.a.PLEG(); err != nil {
			t.Errorf("PLEG is unhealthy too early: %v", err)
		}
		w.after(4 * time.Minute)
		if err := w.a.PLEG(); err == nil {
			t.Error("PLEG is healthy although there was no relist for four minutes")
		}

		w.failing(func(string, string) error { return nil })
		r.events <- runtime.Event{Type: runtime.EventResync}
		w.after(100 * time.Millisecond)
		if c := w.nodeCondition(); c.Status != corev1.ConditionTrue || w.a.PLEG() != nil {
			t.Errorf("node condition with the runtime: %+v, PLEG: %v", c, w.a.PLEG())
		}
		if after := w.get("a"); !ready(after) || idOf(after) != idOf(before) ||
			after.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the outage changed the pod: %+v", after.Status)
		}
	})
}
