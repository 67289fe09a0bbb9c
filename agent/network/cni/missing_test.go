package cni

import (
	"testing"

	"monopod/agent/network/networktest"
)

// TestKernelWithoutNftables checks that pods start and are reachable, and that the removal of the network succeeds.
func TestKernelWithoutNftables(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		if err := networktest.DenyNetfilter(); err != nil {
			t.Error(err)
			return
		}
		n := prepare(t)
		p := newPod(t, n, "bare")
		p.add()
		p.serve(8080)
		if got, err := get(p.ip.String() + ":8080"); err != nil || got != n.Gateways()[0].String() {
			t.Errorf("from the host to the pod: client %q, error %v; want the gateway as client", got, err)
		}
		if _, err := p.run("DEL"); err != nil {
			t.Error(err)
		}
		if err := n.Reclaim(); err != nil {
			t.Error(err)
		}
		if err := n.Remove(); err != nil {
			t.Error(err)
		}
	})
}
