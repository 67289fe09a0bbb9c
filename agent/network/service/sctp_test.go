package service

import (
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/agent/network/networktest"
)

// TestSCTP sends the first packets of SCTP associations to a Service. They arrive at the port of the endpoint. The
// packets are raw, so the kernel needs no support for SCTP.
func TestSCTP(t *testing.T) {
	t.Parallel()
	machine(t, func(w *world) {
		a, b := w.pod(), w.pod()
		svc := service(func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Name: "sctp", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolSCTP}}
		})
		eps := endpointSlices([]string{a.ip, a.ip6})
		for _, slice := range eps {
			slice.Ports = []discoveryv1.EndpointPort{{Name: new("sctp"), Port: new(int32(8080)),
				Protocol: new(corev1.ProtocolSCTP)}}
		}
		w.set(svc, eps)
		for family, to := range map[string]map[*node]struct {
			address string
			port    uint16
		}{
			"ip4:132": {b: {"10.96.0.5", 80}, w.outside: {"203.0.113.1", 30080}, a: {"10.96.0.5", 80}},
			"ip6:132": {b: {"fd96::5", 80}, a: {"fd96::5", 80}, w.outside: {"2001:db8::1", 30080}},
		} {
			var listener net.PacketConn
			if err := a.Inside(func() (err error) { listener, err = net.ListenPacket(family, ""); return err }); err != nil {
				t.Error(err)
				return
			}
			source := uint16(40000)
			for client, at := range to {
				source++
				if err := client.SendInit(family, at.address, source, at.port); err != nil {
					t.Error(err)
				}
				if port, err := received(listener); err != nil || port != 8080 {
					t.Errorf("from %s to %s: the packet arrived at port %d, error %v", client.ip, at.address, port, err)
				}
			}
			listener.Close()
		}
	})
}

// received returns the destination port of the next packet.
func received(l net.PacketConn) (uint16, error) {
	for {
		_, port, err := networktest.ReadInit(l)
		if err != nil || port != 80 { // ignores packets that the pod itself sends to the Service
			return port, err
		}
	}
}
