package connect

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

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

// tunnels are the tunnels that nodes have opened to this server, by the name of the node.
type tunnels struct {
	mu   sync.Mutex // guards open
	open map[string]nodeTunnel
}

// nodeTunnel opens connections to the kubelet of a node.
type nodeTunnel interface {
	Open() (net.Conn, error)
	Close() error
}

var _ nodeTunnel = (*yamux.Session)(nil)

// get returns the tunnel of a node; nil if there is none.
func (t *tunnels) get(node string) nodeTunnel {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[node]
}

// put replaces the tunnel of a node, and closes the previous one.
func (t *tunnels) put(node string, s nodeTunnel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.open[node]; old != nil {
		old.Close()
	}
	if t.open == nil {
		t.open = map[string]nodeTunnel{}
	}
	t.open[node] = s
}

// remove removes a tunnel, unless the node has opened another one.
func (t *tunnels) remove(node string, s nodeTunnel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[node] == s {
		delete(t.open, node)
	}
}

// Tunnel serves nodetunnel.Path: the kubelet that sends the request is reached through its connection until it ends. The
// kubelet must have the certificate of its node.
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
	c.tunnels.put(node, session)
	c.Log.Info("a node has opened a tunnel", zap.String("node", node), zap.String("from", r.RemoteAddr))
	defer context.AfterFunc(c.Stop, func() { session.Close() })()
	<-session.CloseChan()
	c.tunnels.remove(node, session)
	c.Log.Info("the tunnel of a node has ended", zap.String("node", node))
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
