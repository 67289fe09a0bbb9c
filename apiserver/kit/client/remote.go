package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Remote is the API of another server, over HTTP.
type Remote struct {
	// URL is the server's address, without a path.
	URL string
	// HTTP sends the requests with their credentials; nil: http.DefaultClient.
	HTTP *http.Client
	// New returns an empty object of a resource or subresource, or nil if it is unknown.
	New func(resource schema.GroupVersionResource, subresource string) Object
	// Metadata reads only the metadata of objects, and makes an update patch only the metadata.
	Metadata bool
	// Page is the number of objects in each page of a List; 0: all objects.
	Page int
	// MaxList is the maximum size of the responses to a List, and MaxObject that of another response or an event, in
	// bytes; 0: no limit.
	MaxList, MaxObject int64
}

var _ Client = (*Remote)(nil)

// updateTries is how often Update tries again after concurrent writes.
const updateTries = 32

func (c *Remote) path(gvr schema.GroupVersionResource, parts ...string) string {
	p := "/apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		p = "/api/" + gvr.Version
	}
	for _, part := range parts {
		if part != "" {
			p += "/" + url.PathEscape(part)
		}
	}
	return p
}

func (c *Remote) pathOf(ref Ref) string {
	if ref.Namespace == "" {
		return c.path(ref.Resource, ref.Resource.Resource, ref.Name, ref.Subresource)
	}
	return c.path(ref.Resource, "namespaces", ref.Namespace, ref.Resource.Resource, ref.Name, ref.Subresource)
}

func (c *Remote) query(sel Selector) (string, url.Values) {
	q := url.Values{}
	if sel.Labels != nil && !sel.Labels.Empty() {
		q.Set("labelSelector", sel.Labels.String())
	}
	if sel.Fields != nil && !sel.Fields.Empty() {
		q.Set("fieldSelector", sel.Fields.String())
	}
	return c.pathOf(Ref{Resource: sel.Resource, Namespace: sel.Namespace}), q
}

// do sends a request and returns the body of a successful response. It returns the Status in another response as an
// error.
func (c *Remote) do(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	return c.ask(ctx, method, path, c.accepts("PartialObjectMetadata"), body)
}

// accepts returns the Accept header of a request. as is the kind in which servers that support it send metadata.
func (c *Remote) accepts(as string) string {
	const plain = "application/json"
	if !c.Metadata {
		return plain
	}
	return plain + ";as=" + as + ";g=meta.k8s.io;v=v1," + plain
}

func (c *Remote) ask(ctx context.Context, method, path, accept string, body any) (io.ReadCloser, error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, in)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", string(types.MergePatchType))
	case body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	hc := c.HTTP
	if hc == nil {
		hc = http.DefaultClient
	}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, statusError(resp)
}

// maxStatus is the maximum size of an error response, in bytes.
const maxStatus = 1 << 20

func statusError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return err
	}
	var status metav1.Status
	if json.Unmarshal(data, &status) == nil && status.Kind == "Status" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return fmt.Errorf("%s %s: %s: %.200s", resp.Request.Method, resp.Request.URL.Path, resp.Status, data)
}

// call sends a request whose response is an object of ref.
func (c *Remote) call(ctx context.Context, method string, ref Ref, path string, body any) (Object, error) {
	obj := c.New(ref.Resource, ref.Subresource)
	if obj == nil {
		return nil, fmt.Errorf("client: %v is not known", ref.Resource)
	}
	answer, err := c.do(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	return obj, json.NewDecoder(c.bounded(answer, c.MaxObject, path)).Decode(obj)
}

// Get implements Client.
func (c *Remote) Get(ctx context.Context, ref Ref) (Object, error) {
	return c.call(ctx, http.MethodGet, ref, c.pathOf(ref), nil)
}

// Watch implements Client.
func (c *Remote) Watch(ctx context.Context, sel Selector, resourceVersion string) (<-chan watch.Event, error) {
	path, q := c.query(sel)
	q.Set("watch", "true")
	if sel.Bookmarks {
		q.Set("allowWatchBookmarks", "true")
	}
	q.Set("resourceVersion", resourceVersion)
	answer, err := c.do(ctx, http.MethodGet, path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	out := make(chan watch.Event)
	go func() {
		defer close(out)
		defer answer.Close()
		from := c.bounded(answer, c.MaxObject, path)
		for dec := json.NewDecoder(from); ; from.left = c.MaxObject {
			ev, err := c.next(dec, sel.Resource)
			if err != nil {
				return // the closed channel shows that the server or ctx ended the watch
			}
			select {
			case out <- ev:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (c *Remote) next(dec *json.Decoder, resource schema.GroupVersionResource) (watch.Event, error) {
	var raw struct {
		Type   watch.EventType
		Object json.RawMessage
	}
	if err := dec.Decode(&raw); err != nil {
		return watch.Event{}, err
	}
	if raw.Type == watch.Error {
		status := &metav1.Status{}
		return watch.Event{Type: raw.Type, Object: status}, json.Unmarshal(raw.Object, status)
	}
	obj := c.New(resource, "")
	return watch.Event{Type: raw.Type, Object: obj}, json.Unmarshal(raw.Object, obj)
}

// Create implements Client.
func (c *Remote) Create(ctx context.Context, obj Object) (Object, error) {
	gvr, ok := ResourceOf(obj)
	if !ok {
		return nil, fmt.Errorf("client: %T is not known", obj)
	}
	ref := Ref{Resource: gvr, Namespace: obj.GetNamespace()}
	return c.call(ctx, http.MethodPost, ref, c.pathOf(ref), obj)
}

// Update implements Client: it reads, changes and writes until there is no conflict.
func (c *Remote) Update(ctx context.Context, ref Ref, change Change) (Object, error) {
	switch ref.Subresource {
	case "binding":
		return c.bind(ctx, ref, change)
	case "eviction":
		return c.eviction(ctx, ref, change)
	case "token":
		return c.token(ctx, ref, change)
	}
	read := ref
	if read.Subresource != "scale" {
		read.Subresource = ""
	}
	for try := 1; ; try++ {
		cur, err := c.Get(ctx, read)
		if err != nil {
			return nil, err
		}
		next, err := change(cur)
		if err != nil || next == cur {
			return next, err
		}
		ours := next.GetResourceVersion() == "" || next.GetResourceVersion() == cur.GetResourceVersion()
		next.SetResourceVersion(cmp.Or(next.GetResourceVersion(), cur.GetResourceVersion()))
		method, body := http.MethodPut, any(next)
		if c.Metadata {
			method, body = http.MethodPatch, metadataOf(next)
		}
		stored, err := c.call(ctx, method, ref, c.pathOf(ref), body)
		if !apierrors.IsConflict(err) || !ours || try == updateTries {
			return stored, err
		}
	}
}

// metadataOf returns a merge patch that sets the metadata that clients may change.
func metadataOf(obj Object) any {
	return map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(),
		"ownerReferences": obj.GetOwnerReferences(), "finalizers": obj.GetFinalizers(),
	}}
}

// Delete implements Client.
func (c *Remote) Delete(ctx context.Context, ref Ref, opts metav1.DeleteOptions) (Object, error) {
	last, err := c.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	answer, err := c.do(ctx, http.MethodDelete, c.pathOf(ref), &opts)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	data, err := io.ReadAll(c.bounded(answer, c.MaxObject, c.pathOf(ref)))
	if err != nil {
		return nil, err
	}
	var kind metav1.TypeMeta
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, err
	}
	if kind.Kind == "Status" { // deleted at once: this was its last state
		return last, nil
	}
	obj := c.New(ref.Resource, "")
	return obj, json.Unmarshal(data, obj)
}
