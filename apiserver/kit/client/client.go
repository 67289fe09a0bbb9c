// Package client defines the interface of the Kubernetes API for controllers and the agent.
//
// The registry implements Client in process, Remote over HTTP. Both return the errors of
// k8s.io/apimachinery/pkg/api/errors. Objects that a Client returns are shared and must not be modified. Get, List and
// Of are typed helpers.
package client

import (
	"context"
	"io"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/store"
)

// Object is a pointer to a typed Kubernetes object with its TypeMeta set.
type Object = store.Object

// Change computes the next object from the current one, as store.Change. It must not modify the current object, and may
// run more than once.
type Change = store.Change

// Ref names an object, and optionally a subresource.
type Ref struct {
	Resource    schema.GroupVersionResource
	Namespace   string // empty for cluster-scoped resources
	Name        string
	Subresource string // "", "status", "scale", "binding"
}

// Selector selects only this object.
func (r Ref) Selector() Selector {
	return Selector{Resource: r.Resource, Namespace: r.Namespace,
		Fields: fields.OneTermEqualSelector("metadata.name", r.Name)}
}

// Selector selects the objects of a List or Watch. Nil Labels or Fields select everything.
type Selector struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty: all namespaces
	Labels    labels.Selector
	Fields    fields.Selector
	// Bookmarks requests BOOKMARK events of a Watch. All selected changes up to the bookmark's resourceVersion have been
	// sent. In process, a bookmark is sent whenever changes are skipped; over HTTP, the server decides when.
	Bookmarks bool
}

// CachedRevision is the resourceVersion of a list that is not from a server but from a cache, because no server answers.
// A Watch from it waits for a server, and then fails with 410 Expired.
const CachedRevision = "cached"

// Client is the whole API.
type Client interface {
	Get(ctx context.Context, ref Ref) (Object, error)

	// List also returns the resourceVersion of the list, from which a Watch can start.
	List(ctx context.Context, sel Selector) ([]Object, string, error)

	// Watch sends every change after resourceVersion. The channel is closed when ctx ends or the server ends the
	// watch. A watch that falls behind ends with an ERROR event that contains a 410 Status; the caller must list again.
	Watch(ctx context.Context, sel Selector, resourceVersion string) (<-chan watch.Event, error)

	// Create stores obj, which the caller must not use afterwards.
	Create(ctx context.Context, obj Object) (Object, error)

	// Update runs change on the current object and stores the result. change gets the main object for
	// subresources "" and "status", the Scale for "scale", an empty TokenRequest for a service account's "token"
	// (see RequestToken), an empty Eviction for a pod's "eviction" (see Evict). A change of resourceVersion or
	// uid is a conflict. Update retries after concurrent writes. It returns NotFound if the object does not
	// exist.
	Update(ctx context.Context, ref Ref, change Change) (Object, error)

	// Delete starts the deletion of an object (it sets deletionTimestamp) or finishes it, and returns its last state. It
	// returns NotFound if the object does not exist.
	Delete(ctx context.Context, ref Ref, opts metav1.DeleteOptions) (Object, error)
}

// Ordered is a Client whose server numbers the changes of all kinds with one revision and knows the last change
// of each kind, so that a client of several kinds can tell whether it has seen all of them up to the same
// revision. The registry over a store in memory implements it; Remote does not.
type Ordered interface {
	Client

	// Newest returns the resourceVersion of the last change of a resource, or 0 before the first change. Every watch of
	// the resource sends that change, or a later bookmark if it requests bookmarks. ok is false if there may be later
	// changes.
	Newest(resource schema.GroupVersionResource) (revision int64, ok bool)
}

// TerminalPath is the path of a node's API that serves shells on the machine. Only admins may use it, because not every
// user of nodes/proxy may do everything on the machine.
const TerminalPath = "/monopod/terminal"

// Node streams from the containers of a node: the agent implements it, the API server calls it.
type Node interface {
	// Logs writes a container's log to w until the log ends or, with opts.Follow, until the container ends.
	// opts.Container must be set.
	Logs(ctx context.Context, pod *corev1.Pod, opts *corev1.PodLogOptions, w io.Writer) error

	// Exec, Attach and PortForward prepare a stream and return its URL at the runtime, which accepts one SPDY or WebSocket
	// upgrade.
	Exec(ctx context.Context, pod *corev1.Pod, opts *corev1.PodExecOptions) (*url.URL, error)
	Attach(ctx context.Context, pod *corev1.Pod, opts *corev1.PodAttachOptions) (*url.URL, error)
	PortForward(ctx context.Context, pod *corev1.Pod, opts *corev1.PodPortForwardOptions) (*url.URL, error)
}

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

func storage(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: resource}
}

func rbac(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
}

func networking(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: resource}
}
