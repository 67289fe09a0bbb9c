// Package source tells a node what the API wants of it: its pods, and that a
// ConfigMap or Secret that some of them use has changed.
package source

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/client"
	"monopod/apiserver/process/guard"
)

// Update is news of the pods this node is to run: all of them, or one.
type Update struct {
	List *[]*corev1.Pod
	Pod  *corev1.Pod
	Gone bool // Pod no longer exists
}

// Source follows the API.
type Source struct {
	Follower
	node    string
	changed func(uses func(*corev1.Pod) bool)
	updates chan Update
}

// New follows the pods of a node. changed is told, on any goroutine, of which pods
// something that they show has changed.
func New(f Follower, node string, changed func(uses func(*corev1.Pod) bool)) *Source {
	return &Source{Follower: f, node: node, changed: changed, updates: make(chan Update)}
}

// Updates are news of pods: a list first, and again after a gap.
func (s *Source) Updates() <-chan Update { return s.updates }

// Run follows the API until ctx ends.
func (s *Source) Run(ctx context.Context) {
	mine := fields.OneTermEqualSelector("spec.nodeName", s.node)
	guard.Together(ctx,
		func(ctx context.Context) {
			s.Follow(ctx, client.Selector{Resource: client.ConfigMaps}, s.used("ConfigMap"))
		},
		func(ctx context.Context) { s.Follow(ctx, client.Selector{Resource: client.Secrets}, s.used("Secret")) },
		func(ctx context.Context) {
			s.Follow(ctx, client.Selector{Resource: client.Pods, Fields: mine}, Handler{List: s.podList, One: s.podEvent})
		})
}

func (s *Source) podList(ctx context.Context, objs []client.Object) bool {
	pods := make([]*corev1.Pod, 0, len(objs))
	for _, o := range objs {
		pods = append(pods, o.(*corev1.Pod))
	}
	return s.send(ctx, Update{List: &pods})
}

func (s *Source) podEvent(ctx context.Context, ev watch.Event) bool {
	pod, ok := ev.Object.(*corev1.Pod)
	if !ok || ev.Type == watch.Bookmark {
		return true
	}
	return s.send(ctx, Update{Pod: pod, Gone: ev.Type == watch.Deleted})
}

func (s *Source) send(ctx context.Context, u Update) bool {
	select {
	case <-ctx.Done():
		return false
	case s.updates <- u:
		return true
	}
}

// used tells of the pods that use an object of the kind when it changes; of all of
// them after a gap.
func (s *Source) used(kind string) Handler {
	first := true
	return Handler{
		List: func(context.Context, []client.Object) bool {
			if !first {
				s.changed(func(*corev1.Pod) bool { return true })
			}
			first = false
			return true
		},
		One: func(_ context.Context, ev watch.Event) bool {
			if obj, ok := ev.Object.(client.Object); ok && ev.Type != watch.Bookmark {
				s.changed(func(pod *corev1.Pod) bool {
					return pod.Namespace == obj.GetNamespace() && slices.Contains(References(pod, kind), obj.GetName())
				})
			}
			return true
		},
	}
}
