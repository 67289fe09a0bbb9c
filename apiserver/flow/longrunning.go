package flow

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/client"
	"monopod/apiserver/flow/fair"
	"monopod/apiserver/request"
)

const (
	// perWeight is how much of a request's head weighs as much as the watch or
	// stream itself, in bytes: it is kept, raw and parsed, as long as the request.
	perWeight = 4 << 10
	// sharedByUsers is how many times the part of one user all users share, and
	// exemptUser that of an admin or a node, who share with nobody.
	sharedByUsers = 2
	exemptUser    = 5
)

// Hold counts a watch or a stream against what its user may have open, until what
// it returns is called.
func (g *Gate) Hold(r *http.Request, ref client.Ref) (done func(), err error) {
	user, most := auth.UserOf(r.Context()), g.limits.MaxLongRunningPerUser
	bounds, shares, weight := fair.Most{User: most, Shared: most * sharedByUsers}, true, 1+headSize(r)/perWeight
	if exempt(user) {
		bounds, shares = fair.Most{User: most * exemptUser}, false
	}
	if !g.open.Take(user.Name, weight, shares, bounds) {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf(
			"too many watches and streams are open: user %q holds %d of %d, and all users together may hold %d; close some and try again, or raise --max-longrunning-requests-per-user",
			user.Name, g.open.Held(user.Name), bounds.User, bounds.Shared), 1)
	}
	gauge := g.longRunning.WithLabelValues(MetricVerb(r, ref), ref.Resource.Resource, ref.Subresource)
	gauge.Inc()
	return func() {
		gauge.Dec()
		g.open.Give(user.Name, weight, shares)
	}, nil
}

// headSize is how long the request is without its body, in bytes.
func headSize(r *http.Request) int {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// MetricVerb is what upstream's metrics call a request: the method, but for
// reads of many. The words that strangers invent stay out of the metrics.
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
