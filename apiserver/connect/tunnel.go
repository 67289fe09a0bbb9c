package connect

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/nodetunnel"
)

// maxTunnels is the maximum number of tunnels of a node: one for each address of this server that the node knows.
const maxTunnels = 8

// tunnels are the tunnels that nodes have opened to this server, by the name of the node. Those that have ended stay
// until the Node is deleted, so there are as many as Nodes.
type tunnels struct {
	mu  sync.Mutex // guards all
	all map[string]openedTunnels
}

// openedTunnels are the tunnels of a node that are open, the newest last, and the state of the newest one.
type openedTunnels struct {
	open []nodeTunnel
	nodetunnel.State
}

// nodeTunnel opens connections to the kubelet of a node.
type nodeTunnel interface {
	Open() (net.Conn, error)
	Close() error
}

var _ nodeTunnel = (*yamux.Session)(nil)

// get returns the newest tunnel of a node; nil if there is none.
func (t *tunnels) get(node string) nodeTunnel {
	t.mu.Lock()
	defer t.mu.Unlock()
	open := t.all[node].open
	if len(open) == 0 {
		return nil
	}
	return open[len(open)-1]
}

// state returns the state of the tunnel of a node.
func (t *tunnels) state(node string) nodetunnel.State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[node].State
}

// put adds a tunnel of a node, and closes the oldest one if there are too many.
func (t *tunnels) put(node, from string, s nodeTunnel, now time.Time) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]openedTunnels{}
	}
	open := append(slices.Clone(t.all[node].open), s)
	t.all[node] = openedTunnels{open, nodetunnel.State{Open: true, Since: now, From: from}}
	t.mu.Unlock()
	if len(open) > maxTunnels {
		open[0].Close() // writes to the connection
	}
}

// end removes a tunnel, and records why the last one of a node has ended.
func (t *tunnels) end(node string, s nodeTunnel, why string, left bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.all[node]
	of.open = slices.DeleteFunc(slices.Clone(of.open), func(one nodeTunnel) bool { return one == s })
	if len(of.open) == 0 {
		of.State = nodetunnel.State{Since: now, From: of.From, End: why, Left: left}
	}
	t.all[node] = of
}

// ended returns the nodes whose tunnels have ended.
func (t *tunnels) ended() (nodes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for node, of := range t.all {
		if len(of.open) == 0 {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// forget removes what is known of the tunnels of a node if they have ended.
func (t *tunnels) forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all[node].open) == 0 {
		delete(t.all, node)
	}
}

// TunnelOf returns what this server knows about the tunnel of a node.
func (c *Connector) TunnelOf(node string) nodetunnel.State {
	if c.runs(node) {
		return nodetunnel.State{Own: true}
	}
	return c.tunnels.state(node)
}

// Tunnel serves nodetunnel.Path: the kubelet that sends the request is reached through its connection until it ends.
// The kubelet must have the certificate of its node.
func (c *Connector) Tunnel(w http.ResponseWriter, r *http.Request) {
	node, err := nodeOf(auth.UserOf(r.Context()))
	if err == nil && !strings.EqualFold(r.Header.Get("Upgrade"), nodetunnel.Protocol) {
		err = apierrors.NewBadRequest("the request must be an upgrade to " + nodetunnel.Protocol)
	}
	if err != nil {
		c.Fail(w, r, err)
		return
	}
	session, err := nodetunnel.Accept(codec.Hijackable{ResponseWriter: w}, r)
	if err != nil {
		c.Log.Warn("a node opened no tunnel", zap.String("node", node), zap.Error(err))
		return
	}
	c.forgetDeleted()
	c.tunnels.put(node, r.RemoteAddr, session, c.Clock.Now())
	c.Log.Info("a node has opened a tunnel", zap.String("node", node), zap.String("from", r.RemoteAddr))
	defer context.AfterFunc(c.Stop, func() { session.Close() })()
	if _, err := session.AcceptStream(); err == nil { // only the server opens connections: otherwise until it ends
		session.Close()
	}
	why, left := nodetunnel.End(session)
	c.tunnels.end(node, session, why, left, c.Clock.Now())
	c.Log.Info("the tunnel of a node has ended", zap.String("node", node), zap.String("reason", why))
}

// forgetDeleted forgets the tunnels of nodes that have been deleted.
func (c *Connector) forgetDeleted() {
	for _, node := range c.tunnels.ended() {
		if _, err := c.API.Get(c.Stop, client.Ref{Resource: client.Nodes, Name: node}); apierrors.IsNotFound(err) {
			c.tunnels.forget(node)
		}
	}
}

// Leave serves the DELETE of nodetunnel.Path, by which a node that leaves the cluster deletes its Node.
func (c *Connector) Leave(w http.ResponseWriter, r *http.Request) {
	node, err := nodeOf(auth.UserOf(r.Context()))
	if err == nil { // with the server's own permissions: no agent may delete Nodes
		_, err = c.API.Delete(c.Stop, client.Ref{Resource: client.Nodes, Name: node}, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		c.Fail(w, r, err)
		return
	}
	c.tunnels.forget(node)
	c.Log.Info("a node has left the cluster", zap.String("node", node))
	w.WriteHeader(http.StatusNoContent)
}

// nodeOf returns the node whose agent the user is.
func nodeOf(user auth.User) (string, error) {
	name, ok := strings.CutPrefix(user.Name, auth.NodePrefix)
	if !ok || name == "" || !slices.Contains(user.Groups, auth.Nodes) {
		return "", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "",
			errors.New("only the agent of a node can do that, with the certificate of its node"))
	}
	return name, nil
}
