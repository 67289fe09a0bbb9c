package cni

import (
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/cni/ipam"
)

// TestConnectedPods checks that ConnectedPods returns the pods that the plugin has connected, each with the addresses
// of its newest sandbox.
func TestConnectedPods(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t, ranges...)
		a, b, again := newPod(t, n, "started"), newPod(t, n, "other"), newPod(t, n, "started-again")
		check := func(want ...*pod) {
			t.Helper()
			got, err := n.ConnectedPods()
			if err != nil || len(got) != len(want) {
				t.Errorf("connected pods %v, error %v, want %d pods", got, err, len(want))
				return
			}
			for _, w := range want {
				if !slices.ContainsFunc(got, func(s ipam.Connected) bool {
					return slices.ContainsFunc([]string{"started", "other"}, func(name string) bool {
						return s.Pod == types.NamespacedName{Namespace: "ns", Name: name}
					}) && s.UID == "u1" && len(s.Addrs) == 2 && slices.Contains(s.Addrs, w.ip)
				}) {
					t.Errorf("%v lacks the pod with the address %s", got, w.ip)
				}
			}
		}
		check()
		a.add()
		b.add()
		check(a, b)
		for _, ip := range a.ips { // file systems may have coarse timestamps
			if err := os.Chtimes(n.pool().File(ip), time.Time{}, time.Now().Add(-time.Minute)); err != nil {
				t.Error(err)
			}
		}
		again.add()
		check(again, b)
		for _, p := range []*pod{again, b} {
			if _, err := p.run("DEL"); err != nil {
				t.Error(err)
			}
		}
		check(a)
	})
}
