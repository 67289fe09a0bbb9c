package network

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/follow"
)

// TestPodsConnectedBefore checks that policies know the addresses of a pod that an earlier process connected without
// writing its status, until the pod is deleted or replaced.
func TestPodsConnectedBefore(t *testing.T) {
	t.Parallel()
	addrs := []netip.Addr{netip.MustParseAddr("10.88.0.2")}
	f := newPolicySource([]Connected{{Pod: follow.Key{Namespace: "a", Name: "web-0"}, UID: "u1", Addrs: addrs}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web-0", UID: "u1"}}
	f.onPod(nil, pod)
	if got, ok := f.addresses(pod); !ok || !slices.Equal(got, addrs) {
		t.Errorf("addresses %s, known %t, want %s", got, ok, addrs)
	}
	next := pod.DeepCopy()
	next.UID = "u2"
	if got, ok := f.addresses(next); ok {
		t.Errorf("a new pod with the same name has the addresses %s", got)
	}
	f.onPod(pod, nil)
	if got, ok := f.addresses(pod); ok {
		t.Errorf("a deleted pod has the addresses %s", got)
	}
}
