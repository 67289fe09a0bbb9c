package apiserver

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/aggregate"
	"monopod/apiserver/request"
)

// remotes routes requests to the API servers of APIServices.
type remotes struct {
	*aggregate.Aggregator
	fail func(http.ResponseWriter, *http.Request, error)
}

// target returns the target of a request. Its field remote is nil if this server serves the group and version.
func (s remotes) target(r *http.Request) target {
	ref := request.Ref(r)
	return target{ref: ref, remote: s.Handler(ref.Resource.GroupVersion(), s.fail)}
}

// subpaths passes requests of other servers with longer paths than those of subresources to object, which authorizes
// them as requests for the subresource (as upstream): /apis/GROUP/VERSION/[namespaces/NAMESPACE/]RESOURCE/NAME/
// SUBRESOURCE/... It passes all other requests to rest.
func (s remotes) subpaths(object, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if r.URL.RawPath != "" {
			path = r.URL.RawPath
		}
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		const group, version, resource, inside, least = 1, 2, 3, 5, 3
		if len(parts) < resource+least || parts[0] != "apis" ||
			s.Handler(schema.GroupVersion{Group: parts[group], Version: parts[version]}, s.fail) == nil {
			rest.ServeHTTP(w, r)
			return
		}
		params := &chi.RouteContext(r.Context()).URLParams
		params.Add("group", parts[group])
		params.Add("version", parts[version])
		at := resource
		if parts[at] == "namespaces" && len(parts) >= inside+least {
			params.Add("namespace", parts[at+1])
			at = inside
		}
		for i, name := range []string{"resource", "name", "subresource"} {
			params.Add(name, parts[at+i])
		}
		object.ServeHTTP(w, r)
	})
}

// orLocal proxies requests of other servers, and passes the others to local.
func (s remotes) orLocal(local http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if t := s.target(r); t.remote != nil {
			t.remote.ServeHTTP(w, r)
			return
		}
		local(w, r)
	}
}
