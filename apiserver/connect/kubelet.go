package connect

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/client"
	"monopod/apiserver/codec"
)

// Kubelet is the handler of the node's own port: what its agent serves, for whom the
// authenticator knows and who may use the node's subresource in question. Answers are
// a kubelet's: plain text.
func (c *Connector) Kubelet(node string) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := c.Guard.WhoIs(r)
		if err != nil {
			failPlainly(w, err)
			return
		}
		r = r.WithContext(auth.WithUser(r.Context(), user))
		if err := c.permitKubelet(r, node); err != nil {
			failPlainly(w, err)
			return
		}
		leave, err := c.enterKubelet(r, node)
		if err != nil {
			failPlainly(w, err)
			return
		}
		defer leave()
		if err := c.askNode(w, r, node, r.URL.Path, r.URL.RawPath); err != nil {
			failPlainly(w, err)
		}
	})
	return h
}

// enterKubelet bounds the request: streams and logs count as those, all else takes a
// seat.
func (c *Connector) enterKubelet(r *http.Request, node string) (leave func(), err error) {
	if isStream(r.URL.Path) || strings.HasPrefix(r.URL.Path, "/containerLogs/") {
		return c.Gate.Hold(r, client.Ref{Resource: client.Nodes, Name: node, Subresource: "proxy"})
	}
	return c.Gate.Pass(r)
}

func failPlainly(w http.ResponseWriter, err error) {
	status := codec.StatusOf(err)
	codec.RetryAfter(w, status)
	http.Error(w, status.Message, int(status.Code))
}

// permitKubelet is nil for who may use one of the node's subresources that a path is
// about.
func (c *Connector) permitKubelet(r *http.Request, node string) error {
	a := auth.Attributes{User: auth.UserOf(r.Context()), Verb: kubeletVerb(r), Version: "v1", Resource: client.Nodes.Resource, Name: node}
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

// kubeletVerb is what a request does. To open a stream, or to run a command, is to
// create, also with the GET of a WebSocket: who may only look at a node must not get
// into its pods.
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

// isStream says that a path of a node leads into a pod.
func isStream(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"exec", "attach", "run", "portForward"}, first)
}

// kubeletSubresources are those of a node of which one is enough for a path
// (upstream: NodeRequestAttributesGetter, with KubeletFineGrainedAuthz).
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

// askNode has the agent of a node answer.
func (c *Connector) askNode(w http.ResponseWriter, r *http.Request, name, path, rawPath string) error {
	if c.Node == nil {
		return apierrors.NewServiceUnavailable("no node runs in this process")
	}
	n, err := c.Node(name)
	if err != nil {
		return err
	}
	h, ok := n.(http.Handler)
	if !ok {
		return apierrors.NewServiceUnavailable("the agent of node " + name + " serves no HTTP")
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = path, rawPath
	forgetCredentials(r.Header)
	h.ServeHTTP(passable{Hijackable: codec.Hijackable{ResponseWriter: w}}, r)
	return nil
}
