package connect

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
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
	second := open("far") // through another address of the server
	first.Close()
	<-ended
	if got := c.TunnelOf("far"); !got.Open {
		t.Errorf("one of two tunnels has ended: %+v", got)
	}
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

// A node that floods the server with pings, or opens connections to it, loses its tunnel. One that sends much data does
// not.
func TestHostileTunnel(t *testing.T) {
	t.Parallel()
	frame := func(typ byte, flags byte, id, length uint32) []byte {
		out := []byte{0, typ, 0, flags}
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(out, id), length)
	}
	body := bytes.Repeat(frame(2, 1, 0, 0), 1000) // looks like pings
	for name, c := range map[string]struct{ sends, want string }{
		"pings":        {strings.Repeat(string(frame(2, 1, 0, 0)), 61), "the machine sent too many pings"},
		"a connection": {string(frame(1, 1, 2, 0)), "this server closed it"},
		"data": {string(frame(0, 0, 1, uint32(len(body)))) + string(body) + strings.Repeat(string(frame(2, 1, 0, 0)), 60),
			"the machine closed it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tunnels := remote(t, true, http.NotFound)
			tunnels.Stop, tunnels.Clock, tunnels.Log = t.Context(), clock.RealClock{}, zap.NewNop()
			ended := make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				user := auth.User{Name: auth.NodePrefix + "far", Groups: []string{auth.Nodes}}
				tunnels.Tunnel(w, r.WithContext(auth.WithUser(r.Context(), user)))
			}))
			defer s.Close()
			conn, err := net.Dial("tcp", s.Listener.Addr().String()) //nolint:noctx // of a test
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: yamux\r\n\r\n"+c.sends)
			if err != nil {
				t.Fatal(err)
			}
			if name == "data" {
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			<-ended
			conn.Close()
			if got := tunnels.TunnelOf("far"); got.End != c.want {
				t.Errorf("ended: %q, want %q", got.End, c.want)
			}
		})
	}
}

// deletes records what is deleted, and by whom.
type deletes struct {
	API
	deleted []string
}

func (d *deletes) Delete(ctx context.Context, ref client.Ref, _ metav1.DeleteOptions) (client.Object, error) {
	_, user := auth.Known(ctx)
	d.deleted = append(d.deleted, fmt.Sprint(ref.Resource.Resource, "/", ref.Name, " by a user: ", user))
	if ref.Name == "gone" {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	return nil, nil
}

// Only the agent of a node opens a tunnel or leaves, for its own node.
func TestTunnelIsOfNodes(t *testing.T) {
	t.Parallel()
	api := &deletes{}
	c := New(Config{API: api, Stop: t.Context(), Log: zap.NewNop(),
		Fail: func(w http.ResponseWriter, _ *http.Request, err error) { failAsText(w, err) }})
	ask := func(h http.HandlerFunc, user auth.User, header string) int {
		r := httptest.NewRequestWithContext(auth.WithUser(t.Context(), user), http.MethodGet, nodetunnel.Path, nil)
		r.Header.Set("Upgrade", header)
		w := httptest.NewRecorder()
		h(w, r)
		return w.Code
	}
	node := func(name string) auth.User {
		return auth.User{Name: auth.NodePrefix + name, Groups: []string{auth.Nodes}}
	}
	for name, user := range map[string]auth.User{
		"an admin":              auth.Admin,
		"a node's name alone":   {Name: auth.NodePrefix + "n"},
		"the group alone":       {Name: "n", Groups: []string{auth.Nodes}},
		"a node without a name": node(""),
	} {
		if tunnel, leave := ask(c.Tunnel, user, nodetunnel.Protocol), ask(c.Leave, user, ""); tunnel != 403 || leave != 403 {
			t.Errorf("%s: %d, %d", name, tunnel, leave)
		}
	}
	if code := ask(c.Tunnel, node("n"), "websocket"); code != 400 {
		t.Errorf("another protocol: %d", code)
	}
	if len(api.deleted) > 0 {
		t.Errorf("deleted %v", api.deleted)
	}
	for _, name := range []string{"n", "gone"} {
		if code := ask(c.Leave, node(name), ""); code != 204 {
			t.Errorf("%s leaves: %d", name, code)
		}
	}
	if got := fmt.Sprint(api.deleted); got != "[nodes/n by a user: false nodes/gone by a user: false]" {
		t.Error(got)
	}
}
