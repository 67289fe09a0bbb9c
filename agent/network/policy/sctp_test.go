package policy

import (
	"net"
	"testing"

	"monopod/agent/network/networktest"
)

// TestSCTP checks that of the SCTP packets that a client sends to several ports, only those to the port that a policy
// allows arrive.
func TestSCTP(t *testing.T) {
	t.Parallel()
	newCluster(t, networktest.Config{Pods: 2}, func(c *cluster) {
		c.space("one")
		c.pod(0, "one", "app=client")
		c.pod(1, "one", "app=server")
		client, server := c.Pods[0], c.Pods[1]
		for network, address := range map[string]string{"ip4:132": server.IP.String(), "ip6:132": server.IP6.String()} {
			var at net.PacketConn
			if err := server.Inside(func() (err error) { at, err = net.ListenPacket(network, ""); return err }); err != nil {
				t.Error(err)
				return
			}
			source := uint16(40000)
			arrives := func(what string, want uint16, ports ...uint16) {
				t.Helper()
				for _, port := range ports {
					source++
					if err := client.SendInit(network, address, source, port); err != nil {
						t.Error(err)
					}
				}
				if _, port, err := networktest.ReadInit(at); err != nil || port != want {
					t.Errorf("%s: a packet arrived at port %d, error %v; want %d", what, port, err, want)
				}
			}
			arrives("without policies", 81, 81)
			c.apply(t, "one", "p",
				"{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{protocol: SCTP, port: 80}, {port: 81}]}]}")
			arrives("ingress of port 80", 80, 81, 80)
			c.apply(t, "one", "p",
				"{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{ports: [{protocol: SCTP, "+
					"port: 82, endPort: 84}, {port: 81}]}]}")
			arrives("egress to the ports 82 to 84", 83, 81, 85, 83)
			c.apply(t, "one", "p", "")
			arrives("without the policy", 81, 81)
			at.Close()
		}
	})
}
