// Package source follows the pods of a node in the API, and the ConfigMaps, Secrets and certificates that they use. It
// also maintains the mirror pods, which represent the node's static pods in the API (mirror.go).
package source

import (
	"context"

	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/volume"
)

// Update is a change of the node's pods: a full list, or one changed pod.
type Update struct {
	List *[]*corev1.Pod
	Pod  *corev1.Pod
	Gone bool // Pod no longer exists
}

// Source follows the API.
type Source struct {
	follow.Follower
	// Named follows each Secret and ConfigMap that a pod refers to by its name: the agent of another machine may read no
	// others. Otherwise all of them are followed.
	Named   bool
	node    string
	changed func(uses func(*corev1.Pod) bool)
	updates chan Update
}

// Follower returns a follower for the agent, which retries as often as a kubelet.
func Follower(c client.Client, clk clock.Clock, log *zap.Logger) follow.Follower {
	return follow.Follower{Client: c, Clock: clk, Log: log, Name: "agent", Most: backoff.WriteMax}
}

// New returns a Source for the pods of a node. It calls changed, on any goroutine, when an object has changed; uses
// reports whether a pod uses the object.
func New(f follow.Follower, node string, changed func(uses func(*corev1.Pod) bool)) *Source {
	return &Source{Follower: f, node: node, changed: changed, updates: make(chan Update)}
}

// Updates returns the changes of the pods: a full list first, and again after a gap.
func (s *Source) Updates() <-chan Update { return s.updates }

// Run follows the API until ctx ends.
func (s *Source) Run(ctx context.Context) {
	mine := fields.OneTermEqualSelector("spec.nodeName", s.node)
	mounted := newMounted(s)
	guard.Together(ctx,
		func(ctx context.Context) {
			if s.Named {
				mounted.run(ctx)
				return
			}
			s.Follow(ctx, client.Selector{Resource: client.ConfigMaps}, s.used(client.ConfigMaps.Resource))
		},
		func(ctx context.Context) {
			if !s.Named {
				s.Follow(ctx, client.Selector{Resource: client.Secrets}, s.used(client.Secrets.Resource))
			}
		},
		func(ctx context.Context) {
			s.Follow(ctx, client.Selector{Resource: client.ClusterTrustBundles}, s.used(client.ClusterTrustBundles.Resource))
		},
		func(ctx context.Context) {
			s.Follow(ctx, client.Selector{Resource: client.PodCertificateRequests, Fields: mine}, s.certificates())
		},
		func(ctx context.Context) {
			s.Follow(ctx, client.Selector{Resource: client.Pods, Fields: mine}, follow.Handler{
				List: func(ctx context.Context, objs []client.Object) {
					pods := make([]*corev1.Pod, 0, len(objs))
					for _, o := range objs {
						pods = append(pods, o.(*corev1.Pod))
					}
					mounted.list(pods)
					s.send(ctx, Update{List: &pods})
				},
				Event: func(ctx context.Context, typ watch.EventType, obj client.Object) {
					mounted.pod(obj.(*corev1.Pod), typ == watch.Deleted)
					s.send(ctx, Update{Pod: obj.(*corev1.Pod), Gone: typ == watch.Deleted})
				},
			})
		})
}

func (s *Source) send(ctx context.Context, u Update) {
	select {
	case <-ctx.Done():
	case s.updates <- u:
	}
}

// used returns a handler that calls changed for each changed object of the resource, and for all pods after a gap.
func (s *Source) used(resource string) follow.Handler {
	first := true
	return follow.Handler{
		List: func(context.Context, []client.Object) {
			if !first {
				s.changed(func(*corev1.Pod) bool { return true })
			}
			first = false
		},
		Event: func(_ context.Context, _ watch.EventType, obj client.Object) {
			s.changed(func(pod *corev1.Pod) bool {
				if obj.GetNamespace() == "" { // a ClusterTrustBundle; pods may refer to it by its signer
					return uses(pod, resource, obj.GetName()) || uses(pod, resource, "")
				}
				return pod.Namespace == obj.GetNamespace() && uses(pod, resource, obj.GetName())
			})
		},
	}
}

// usedNamed is used for one object: after a gap, it calls changed only for the pods that use it.
func (s *Source) usedNamed(ref client.Ref) follow.Handler {
	h := s.used(ref.Resource.Resource)
	first := true
	h.List = func(context.Context, []client.Object) {
		if !first {
			s.changed(func(pod *corev1.Pod) bool {
				return pod.Namespace == ref.Namespace && uses(pod, ref.Resource.Resource, ref.Name)
			})
		}
		first = false
	}
	return h
}

// certificates returns a handler that calls changed for the pod of each changed PodCertificateRequest.
func (s *Source) certificates() follow.Handler {
	h := s.used(client.PodCertificateRequests.Resource)
	h.Event = func(_ context.Context, _ watch.EventType, obj client.Object) {
		uid := obj.(*certificatesv1.PodCertificateRequest).Spec.PodUID
		s.changed(func(pod *corev1.Pod) bool { return pod.UID == uid })
	}
	return h
}

// uses reports whether the pod reads an object of its namespace.
func uses(pod *corev1.Pod, resource, name string) (found bool) {
	volume.All().References(pod, func(r, n string) { found = found || r == resource && n == name })
	return found
}
