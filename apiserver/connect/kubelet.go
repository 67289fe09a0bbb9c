package connect

import (
	"cmp"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
)

// Kubelet returns the handler of the node's own port, which serves the agent's paths to the other servers of the
// cluster, and to users who are authorized for the corresponding subresource of the node. Errors are plain text, as a
// kubelet's.
func (c *Connector) Kubelet(node string) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := c.Guard.WhoIs(r)
		if err != nil {
			failAsText(w, err)
			return
		}
		r = r.WithContext(auth.WithUser(r.Context(), user))
		// A binding of a role would give the same permissions in the API, where the certificate must be worthless: a Node
		// whose status has an API server's address could otherwise pass a user's request on to that server.
		if user.Name != auth.KubeletClient.Name {
			if err := cmp.Or(c.permitKubelet(r, node), permitTerminal(r, r.URL.Path)); err != nil {
				failAsText(w, err)
				return
			}
		}
		enter := c.Gate.Pass
		// Streams and logs have a limit of their own and need no seat.
		if isStream(r.URL.Path) || strings.HasPrefix(r.URL.Path, "/containerLogs/") {
			enter = func(r *http.Request) (func(), error) {
				return c.Gate.Hold(r, client.Ref{Resource: client.Nodes, Name: node, Subresource: "proxy"})
			}
		}
		leave, err := enter(r)
		if err != nil {
			failAsText(w, err)
			return
		}
		defer leave()
		if err := c.serveNode(w, r, node, r.URL.Path, r.URL.RawPath); err != nil {
			failAsText(w, err)
		}
	})
	return h
}

func failAsText(w http.ResponseWriter, err error) {
	status := codec.StatusOf(err)
	codec.RetryAfter(w, status)
	http.Error(w, status.Message, int(status.Code))
}

// permitKubelet returns a 403 error unless the user is authorized for one of the node's subresources to which the path
// belongs.
func (c *Connector) permitKubelet(r *http.Request, node string) error {
	a := auth.Attributes{User: auth.UserOf(r.Context()), Verb: kubeletVerb(r), Version: "v1",
		Resource: client.Nodes.Resource, Name: node}
	var refused error
	for _, sub := range kubeletSubresources(r.URL.Path) {
		a.Subresource = sub
		err := c.Guard.Authorize(r.Context(), a)
		if err == nil || !apierrors.IsForbidden(err) {
			return err
		}
		if refused == nil {
			refused = err
		}
	}
	return refused
}

// permitTerminal returns a 403 error for a shell on the machine unless the user is an admin.
func permitTerminal(r *http.Request, where string) error {
	if !isTerminal(where) || slices.Contains(auth.UserOf(r.Context()).Groups, auth.Masters) {
		return nil
	}
	return apierrors.NewForbidden(client.Nodes.GroupResource(), "", errors.New("only admins may open a terminal on a node"))
}

// kubeletVerb returns the verb of a request. Opening a stream or running a command requires create, also with the GET
// of a WebSocket: users who may only get nodes must not reach their pods.
func kubeletVerb(r *http.Request) string {
	if isStream(r.URL.Path) {
		return "create"
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// isStream reports whether a path of a node opens a stream to a pod, or a terminal.
func isStream(where string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(where, "/"), "/")
	return slices.Contains([]string{"exec", "attach", "run", "portForward"}, first) || isTerminal(where)
}

func isTerminal(where string) bool { return path.Clean("/"+where) == client.TerminalPath }

// kubeletSubresources returns the subresources of a node of which one is enough for a path (upstream:
// NodeRequestAttributesGetter, with KubeletFineGrainedAuthz).
func kubeletSubresources(path string) []string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "stats", "metrics", "checkpoint":
		return []string{first}
	case "logs":
		return []string{"log"}
	case "pods", "runningpods":
		return []string{"pods", "proxy"}
	case "healthz", "configz":
		return []string{first, "proxy"}
	}
	return []string{"proxy"}
}

// serveNode passes a request to the agent of a node.
func (c *Connector) serveNode(w http.ResponseWriter, r *http.Request, name, path, rawPath string) error {
	n, err := c.NodeNamed(r.Context(), name)
	if err != nil {
		return err
	}
	h, ok := n.(http.Handler)
	if !ok {
		return apierrors.NewServiceUnavailable("the agent of node " + name + " serves no HTTP")
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = path, rawPath
	removeCredentials(r.Header)
	h.ServeHTTP(Passable{Hijackable: codec.Hijackable{ResponseWriter: w}}, r)
	return nil
}
