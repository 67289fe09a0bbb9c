package fake

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
)

// A pod can listen on a port that another program uses on all addresses of the machine.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	n := newNetwork(netip.Prefix{}, true)
	defer n.Close()
	e, err := n.Attach(false)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(other.Addr().(*net.TCPAddr).Port)
	l, err := e.Listen("tcp", ":"+port)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("pod"))
			c.Close()
		}
	}()
	c, err := n.Dial(t.Context(), "tcp", net.JoinHostPort(e.Address(), port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make([]byte, 3)
	if _, err := c.Read(got); err != nil || string(got) != "pod" {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := e.Listen("tcp", ":"+port); err == nil {
		t.Error("a second Listen on the port succeeded")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
