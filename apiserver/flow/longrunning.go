package flow

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/auth"
	"monopod/apiserver/flow/fair"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/request"
)

const (
	// perWeight is the size of URL and headers, in bytes, that counts as one more watch or stream: they stay in
	// memory, raw and parsed, as long as the request.
	perWeight = 4 << 10
	// sharedByUsers is the limit for all users together, and exemptUser that for an admin or a node, in
	// multiples of the limit for one user.
	sharedByUsers = 2
	exemptUser    = 5
)

// Hold counts a watch or stream towards its user's limit until done is called.
func (g *Gate) Hold(r *http.Request, ref client.Ref) (done func(), err error) {
	user, most := auth.UserOf(r.Context()), g.limits.MaxLongRunningPerUser
	bounds, shares, weight := fair.Most{User: most, Shared: most * sharedByUsers}, true, 1+headSize(r)/perWeight
	if exempt(user) {
		bounds, shares = fair.Most{User: most * exemptUser}, false
	}
	if !g.open.Take(user.Name, weight, shares, bounds) {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf(
			"too many watches and streams are open: user %q has %d of %d, and all users together can have %d; "+
				"close some and try again, or raise --max-longrunning-requests-per-user",
			user.Name, g.open.Held(user.Name), bounds.User, bounds.Shared), 1)
	}
	gauge := g.longRunning.WithLabelValues(MetricVerb(r, ref), ref.Resource.Resource, ref.Subresource)
	gauge.Inc()
	return func() {
		gauge.Dec()
		g.open.Give(user.Name, weight, shares)
	}, nil
}

// headSize returns the size of the request without its body, in bytes.
func headSize(r *http.Request) int {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// MetricVerb returns the verb of a request in upstream's metrics: the method, or LIST, WATCH and so on. It maps unknown
// methods to one value, so that clients cannot create new series.
func MetricVerb(r *http.Request, ref client.Ref) string {
	switch r.Method {
	case http.MethodGet:
		if ref.Resource.Resource != "" {
			return strings.ToUpper(request.Verb(r, ref))
		}
		return r.Method
	case http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}
