package connect

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/nodetunnel"
)

// The server knows since when the tunnel of a node is open, and when and why it ended, until the Node is deleted.
func TestTunnelOf(t *testing.T) {
	t.Parallel()
	c := remote(t, true, http.NotFound) // with the Node far
	c.Stop, c.Clock, c.Log = t.Context(), clock.RealClock{}, zap.NewNop()
	ended := make(chan struct{})
	open := func(node string) net.Listener { // and wait until the server knows it
		before := c.TunnelOf(node)
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user := auth.User{Name: auth.NodePrefix + node, Groups: []string{auth.Nodes}}
			c.Tunnel(w, r.WithContext(auth.WithUser(r.Context(), user)))
			ended <- struct{}{}
		}))
		t.Cleanup(s.Close)
		roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		l, err := nodetunnel.Open(t.Context(), s.URL, &tls.Config{RootCAs: roots})
		if err != nil {
			t.Fatal(err)
		}
		for c.TunnelOf(node) == before {
			time.Sleep(time.Millisecond)
		}
		return l
	}
	if got := c.TunnelOf("far"); got != (nodetunnel.State{}) {
		t.Errorf("before the first tunnel: %+v", got)
	}
	first := open("far")
	got := c.TunnelOf("far")
	if !got.Open || time.Since(got.Since) > time.Minute || got.From == "" || got.End != "" {
		t.Errorf("an open tunnel: %+v", got)
	}
	second := open("far") // replaces the first one
	<-ended
	if got := c.TunnelOf("far"); !got.Open {
		t.Errorf("a replaced tunnel: %+v", got)
	}
	first.Close()
	second.Close()
	<-ended
	opened := got.Since
	got = c.TunnelOf("far")
	if got.Open || !got.Since.After(opened) || got.From == "" || got.End != "the machine closed it" || !got.Left {
		t.Errorf("a tunnel that has ended: %+v", got)
	}
	if c.tunnels.get("far") != nil {
		t.Error("a tunnel that has ended is used")
	}
	// That of a node without a Node is forgotten when another one is opened.
	open("deleted").Close()
	<-ended
	if got := c.TunnelOf("deleted"); got.End == "" {
		t.Errorf("before it is forgotten: %+v", got)
	}
	third := open("far")
	if got := c.TunnelOf("deleted"); got != (nodetunnel.State{}) || len(c.tunnels.all) != 1 {
		t.Errorf("the tunnel of a deleted node: %+v, %d tunnels", got, len(c.tunnels.all))
	}
	third.Close()
	<-ended
	c.Node = own{}.find
	if got := c.TunnelOf("own"); got != (nodetunnel.State{Own: true}) {
		t.Errorf("the node of this process: %+v", got)
	}
}
