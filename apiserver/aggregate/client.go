package aggregate

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/metrics"
)

const (
	// page is the number of objects in each page of a list (upstream: the same).
	page = 500
	// maxList is the maximum size of the responses to a list, in bytes, and maxObject that of another response or an
	// event, which is more than etcd accepts for an object. They are read object by object, and only metadata is kept.
	maxList, maxObject = 256 << 20, 16 << 20
	// requestTimeout limits a request to another server (upstream: --request-timeout).
	requestTimeout = time.Minute
)

// Kinds returns the served kinds and those of available servers, for controllers that work on objects of all kinds.
// Config.Announce must close the channel of served.
func (a *Aggregator) Kinds(served client.Kinds) client.Kinds {
	return func() ([]client.Kind, <-chan struct{}) {
		kinds, changed := served()
		for gv, b := range *a.now.Load() {
			kinds = append(kinds, b.info.Load().kinds(gv)...)
		}
		return kinds, changed
	}
}

// kinds returns the kinds whose objects controllers can list and delete. It returns none while the server is
// unavailable.
func (i *info) kinds(gv schema.GroupVersion) (kinds []client.Kind) {
	if !i.available {
		return nil
	}
	for _, r := range i.resources {
		if collectable(r) {
			kinds = append(kinds,
				client.Kind{Resource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced,
					Unwatched: !slices.Contains(r.Verbs, "watch")})
		}
	}
	return kinds
}

// collectable reports whether objects of the resource exist until somebody deletes them.
func collectable(r metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete")
}

// Silent returns the groups and versions whose servers are unavailable and may have objects in namespaces, sorted.
func (a *Aggregator) Silent() (out []string) {
	for gv, b := range *a.now.Load() {
		info := b.info.Load()
		namespaced := func(r metav1.APIResource) bool { return r.Namespaced && collectable(r) }
		if !info.available && (info.resources == nil || slices.ContainsFunc(info.resources, namespaced)) {
			out = append(out, gv.String())
		}
	}
	slices.Sort(out)
	return out
}

// Client returns api with the kinds of other servers: metrics.k8s.io with whole objects, the others with metadata only.
// An update of such an object changes only its metadata.
func (a *Aggregator) Client(api client.Ordered) client.Ordered { return &routed{Ordered: api, to: a} }

// routed passes calls about other servers' kinds to these servers.
type routed struct {
	client.Ordered
	to *Aggregator
}

var _ client.Ordered = (*routed)(nil)

// at returns the client of the server that serves a resource.
func (c *routed) at(resource schema.GroupVersionResource) client.Client {
	if b := (*c.to.now.Load())[resource.GroupVersion()]; b != nil {
		return b.client()
	}
	return c.Ordered
}

// remote reports whether another server serves the resource.
func (c *routed) remote(resource schema.GroupVersionResource) bool {
	return (*c.to.now.Load())[resource.GroupVersion()] != nil
}

// Get implements client.Client.
func (c *routed) Get(ctx context.Context, ref client.Ref) (client.Object, error) {
	return c.at(ref.Resource).Get(ctx, ref)
}

// List implements client.Client.
func (c *routed) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	return c.at(sel.Resource).List(ctx, sel)
}

// Watch implements client.Client.
func (c *routed) Watch(ctx context.Context, sel client.Selector, resourceVersion string) (<-chan watch.Event, error) {
	return c.at(sel.Resource).Watch(ctx, sel, resourceVersion)
}

// Update implements client.Client.
func (c *routed) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	return c.at(ref.Resource).Update(ctx, ref, change)
}

// Delete implements client.Client.
func (c *routed) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	return c.at(ref.Resource).Delete(ctx, ref, opts)
}

// Newest implements client.Ordered. Revisions of other servers are unrelated to this server's, so that no client waits
// for them.
func (c *routed) Newest(resource schema.GroupVersionResource) (int64, bool) {
	if c.remote(resource) {
		return 0, true
	}
	return c.Ordered.Newest(resource)
}

// client returns the server's API for this process.
func (b *backend) client() client.Client {
	to := &client.Remote{URL: b.url, HTTP: &http.Client{Transport: ownRequests{b}}, Page: page, MaxList: maxList,
		MaxObject: maxObject}
	if b.service.Spec.Group == metrics.GroupVersion().Group {
		to.New = func(resource schema.GroupVersionResource, _ string) client.Object { return metrics.New(resource) }
		return to
	}
	to.Metadata, to.New = true, func(resource schema.GroupVersionResource, _ string) client.Object {
		at := slices.IndexFunc(b.info.Load().resources,
			func(r metav1.APIResource) bool { return r.Name == resource.Resource })
		if at < 0 {
			return nil
		}
		return &metadata{kind: resource.GroupVersion().WithKind(b.info.Load().resources[at].Kind)}
	}
	return to
}

// ownRequests sends requests of this process itself. All but watches end after requestTimeout.
type ownRequests struct{ *backend }

// RoundTrip implements http.RoundTripper.
func (o ownRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case o.err != nil:
		return nil, o.err
	case !o.info.Load().available:
		return nil, apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
	}
	ctx, cancel := r.Context(), func() {}
	if !r.URL.Query().Has("watch") {
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
	}
	r = r.Clone(ctx)
	identify(r, "system:kube-controller-manager", "", []string{auth.Masters}, nil)
	answer, err := o.transport.RoundTrip(r)
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = &ending{answer.Body, cancel}
	return answer, nil
}

// ending is a response body that cancels the context of its request when it is closed.
type ending struct {
	io.ReadCloser
	end context.CancelFunc
}

// Close implements io.Closer.
func (e *ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}

// metadata is the metadata of another server's object, with the object's kind. It lacks managedFields and annotations,
// which can be as large as the object and which no controller of all kinds reads.
type metadata struct {
	metav1.PartialObjectMetadata
	kind schema.GroupVersionKind
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *metadata) UnmarshalJSON(data []byte) error {
	err := json.Unmarshal(data, &m.PartialObjectMetadata)
	m.SetGroupVersionKind(m.kind)
	m.ManagedFields, m.Annotations = nil, nil
	return err
}

// DeepCopyObject implements runtime.Object.
func (m *metadata) DeepCopyObject() runtime.Object {
	return &metadata{PartialObjectMetadata: *m.PartialObjectMetadata.DeepCopy(), kind: m.kind}
}
