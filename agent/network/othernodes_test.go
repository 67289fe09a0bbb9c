package network

import (
	"net/netip"
	"testing"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/policy"
	"monopod/apiserver/kit/follow"
)

func podOn(node string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web-0", UID: uid}, Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.88.1.2"}}},
	}
}

// The pod of a StatefulSet may move to this node: then the source of pods of other nodes may report the end of the old
// one after that of this node's pods has reported the new one.
func TestAPodMovesToThisNode(t *testing.T) {
	t.Parallel()
	key := follow.Key{Namespace: "a", Name: "web-0"}
	for _, reconcileBetween := range []bool{false, true} {
		f := newPolicySource(nil)
		e := newPolicyEnforcer(f, "here", policy.Config{Table: "t", Log: zap.NewNop()})
		reconcile := func() {
			if err := e.reconcile(); err != nil {
				t.Error(err)
			}
		}
		old, next := podOn("there", "u1"), podOn("here", "u2")
		f.onPod(nil, old)
		reconcile()
		if e.here(key) {
			t.Error("the pod of another node counts as one of this node")
		}
		f.onPod(nil, next)
		if reconcileBetween {
			reconcile()
		}
		f.onPod(old, nil)
		reconcile()
		if !e.here(key) || e.pods[key].UID != "u2" {
			t.Errorf("the new pod is not known; reconciled between: %v", reconcileBetween)
		}
		f.onPod(next, nil)
		reconcile()
		if e.pods[key] != nil {
			t.Error("the deleted pod is still known")
		}
	}
}

// No pod is in two sources: one that is not scheduled yet is in none.
func TestSourcesOfPodsDoNotOverlap(t *testing.T) {
	t.Parallel()
	sources := newPolicySource(nil).sources("here")
	for node, want := range map[string][2]bool{"": {}, "here": {true, false}, "there": {false, true}} {
		set := fields.Set{"spec.nodeName": node}
		got := [2]bool{sources[0].Selector.Fields.Matches(set), sources[1].Selector.Fields.Matches(set)}
		if got != want || sources[0].Optional || !sources[1].Optional {
			t.Errorf("a pod on node %q: own and other source %v, want %v", node, got, want)
		}
	}
}

// A pod of this node is admitted only when its own policies apply, not because one of the name was on another node.
func TestAdmissionWaitsForThePodOfThisNode(t *testing.T) {
	t.Parallel()
	f := newPolicySource(nil)
	e := newPolicyEnforcer(f, "here", policy.Config{Table: "t", Log: zap.NewNop()})
	f.onPod(nil, podOn("there", "u1"))
	key := follow.Key{Namespace: "a", Name: "web-0"}
	done := make(chan error, 1)
	f.connected[key] = connected{"u2", []netip.Addr{netip.MustParseAddr("10.88.0.2")}}
	f.waiting = append(f.waiting, waiter{key, t.Context(), done})
	if err := e.reconcile(); err != nil {
		t.Error(err)
	}
	if len(done) > 0 {
		t.Error("the pod was admitted before the API has delivered it")
	}
	f.onPod(nil, podOn("here", "u2"))
	if err := e.reconcile(); err != nil {
		t.Error(err)
	}
	if len(done) == 0 {
		t.Error("the pod was not admitted")
	}
}
