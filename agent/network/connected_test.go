package network

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/follow"
)

// TestPodsConnectedBefore: policies know the addresses of a pod whose status an earlier process could not write before
// it ended, until the pod is another one.
func TestPodsConnectedBefore(t *testing.T) {
	t.Parallel()
	addrs := []netip.Addr{netip.MustParseAddr("10.88.0.2")}
	f := newPolicySource([]Connected{{Pod: follow.Key{Namespace: "a", Name: "web-0"}, UID: "u1", Addrs: addrs}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web-0", UID: "u1"}}
	f.onPod(nil, pod)
	if got, ok := f.addresses(pod); !ok || !slices.Equal(got, addrs) {
		t.Errorf("%s, %t, want %s", got, ok, addrs)
	}
	next := pod.DeepCopy()
	next.UID = "u2"
	if got, ok := f.addresses(next); ok {
		t.Errorf("another pod of the name has the addresses %s", got)
	}
	f.onPod(pod, nil)
	if got, ok := f.addresses(pod); ok {
		t.Errorf("a deleted pod has the addresses %s", got)
	}
}
