package cni

import (
	"testing"

	"monopod/agent/network/networktest"
)

// TestKernelWithoutNftables: pods start and are reached, and the network goes without an error. Only a pod that needs a
// host port fails.
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
			t.Errorf("host to pod: %q, %v; want an answer to the gateway", got, err)
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
