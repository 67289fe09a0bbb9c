package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/access"
	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/request"
)

// target is the object of a request.
type target struct {
	res *registry.Resource
	ref client.Ref
	sub *kind.Subresource // nil: the object itself
	// remote is another server, whose kinds are unknown here; nil: this one.
	remote http.Handler
}

// otherKind reports whether the target's body has another kind than its resource.
func (t target) otherKind() bool { return t.sub != nil && t.sub.New != nil }

// body returns what a write to the target requires of its body.
func (t target) body() codec.Expected {
	into := codec.Expected{New: t.res.New, Kind: t.res.GVK(), Ref: t.ref, Namespaced: t.res.Namespaced}
	if t.otherKind() {
		into.New, into.Kind = t.sub.New, t.sub.Kind
	}
	return into
}

// decode reads the object of a create or an update from the body.
func (t target) decode(w http.ResponseWriter, r *http.Request) (registry.Object, error) {
	data, err := codec.Body(r)
	if err != nil {
		return nil, err
	}
	return codec.DecodeObject(w, r, data, t.body())
}

// negotiate returns the format of the response to a write.
func (t target) negotiate(r *http.Request) (codec.Format, error) {
	if t.otherKind() {
		return codec.Negotiate(r, "Table", "PartialObjectMetadata")
	}
	return codec.NegotiateWrite(r, t.res)
}

// longRunning reports whether the request is a watch or a stream, which have no time limit.
func (t target) longRunning(r *http.Request) bool {
	return t.sub != nil && t.sub.Stream || request.IsWatch(r, t.ref)
}

// verb handles a request for a target. Its error is sent as a Status.
type verb func(w http.ResponseWriter, r *http.Request, t target) error

// targets authorizes requests for resources, finds their targets and calls their verbs.
type targets struct {
	registry *registry.Registry
	guard    *access.Guard
	gate     gate
	remotes  remotes
	fail     func(http.ResponseWriter, *http.Request, error)
}

// handle returns a handler that calls do with the target of each request, and sends its error.
func (s *targets) handle(do verb) http.HandlerFunc {
	do = s.gate.limited(do)
	proxy := s.gate.limited(func(w http.ResponseWriter, r *http.Request, t target) error {
		t.remote.ServeHTTP(w, r)
		return nil
	})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.serve(w, r, do, proxy); err != nil {
			s.fail(w, r, err)
		}
	})
	return s.guard.Audited(h, s.about).ServeHTTP
}

// serve calls do with the request's target, or proxy if another server serves it. It authorizes before it looks up the
// resource, so that a refused user does not learn whether it exists.
func (s *targets) serve(w http.ResponseWriter, r *http.Request, do, proxy verb) error {
	if err := s.guard.Permit(r); err != nil {
		return err
	}
	if t := s.remotes.target(r); t.remote != nil {
		return proxy(w, r, t)
	}
	t, err := s.find(r)
	if err != nil {
		return err
	}
	if t.sub != nil && t.sub.Enters {
		if err := s.guard.PermitEntering(r); err != nil {
			return err
		}
	}
	if err := request.CheckQuery(r); err != nil {
		return err
	}
	// While a definition is being deleted, the registry refuses only the creation of its objects: their finalizers must
	// be removable.
	if t.ref.Subresource == "" && !t.res.Can(request.Verb(r, t.ref)) && t.res.Ending == "" {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	return do(w, withWarnings(w, r, t.res), t)
}

// about returns the object of a request, even if its resource is not served, and whether it is a watch or a stream.
func (s *targets) about(r *http.Request) (ref client.Ref, long bool) {
	if t := s.remotes.target(r); t.remote != nil {
		return t.ref, t.longRunning(r)
	}
	t, err := s.find(r)
	if err != nil {
		return request.Ref(r), false
	}
	return t.ref, t.longRunning(r)
}

// find returns the target of a request, or an error if its resource is not served.
func (s *targets) find(r *http.Request) (target, error) {
	ref := request.Ref(r)
	res, err := s.registry.Resource(ref.Resource)
	if err != nil {
		return target{}, err
	}
	sub := res.Subresource(ref.Subresource)
	if ref.Subresource != "" && sub == nil {
		return target{}, s.errNoSubresource(r, ref)
	}
	if scoped := ref.Namespace != ""; scoped && !res.Namespaced || !scoped && res.Namespaced && ref.Name != "" {
		return target{}, request.ErrNotFound()
	}
	return target{res: res, ref: ref, sub: sub}, nil
}

// errNoSubresource returns a 404 error, or a 405 error if the path is that of a collection in a namespace.
func (s *targets) errNoSubresource(r *http.Request, ref client.Ref) error {
	if inside := ref.Resource.GroupVersion().WithResource(ref.Subresource); ref.Resource.Resource == "namespaces" {
		if _, err := s.registry.Resource(inside); err == nil {
			return apierrors.NewMethodNotSupported(inside.GroupResource(), r.Method)
		}
	}
	return request.ErrNotFound()
}
