package agent

import (
	"context"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/agent/backoff"
	"monopod/apiserver/client"
)

// update is news of the pods this node is to run: all of them, or one.
type update struct {
	list *[]*corev1.Pod
	pod  *corev1.Pod
	gone bool // pod no longer exists
}

// source tells what the API wants of this node: its pods, and that a ConfigMap or
// Secret has changed.
type source struct {
	a       *Agent
	updates chan update
}

func newSource(a *Agent) *source { return &source{a: a, updates: make(chan update)} }

// run follows the API until ctx ends.
func (s *source) run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.follow(ctx, client.Selector{Resource: client.ConfigMaps}, s.refs("ConfigMap"))
	}()
	secrets := make(chan struct{})
	go func() {
		defer close(secrets)
		s.follow(ctx, client.Selector{Resource: client.Secrets}, s.refs("Secret"))
	}()
	mine := fields.OneTermEqualSelector("spec.nodeName", s.a.cfg.NodeName)
	s.follow(ctx, client.Selector{Resource: client.Pods, Fields: mine}, handler{list: s.podList, one: s.podEvent})
	<-done
	<-secrets
}

// handler takes what follow sees; each returns false to stop.
type handler struct {
	list func(ctx context.Context, objs []client.Object) bool
	one  func(ctx context.Context, ev watch.Event) bool
}

// follow lists, then watches, and starts again whenever the watch ends.
func (s *source) follow(ctx context.Context, sel client.Selector, h handler) {
	for delay := backoff.WriteInitial; ; delay = min(2*delay, backoff.WriteMax) {
		objs, rev, err := s.a.Client.List(ctx, sel)
		if err == nil {
			delay = backoff.WriteInitial
			if !h.list(ctx, objs) || !s.watch(ctx, sel, rev, h) {
				return
			}
		} else if ctx.Err() == nil {
			s.a.log.Warn("cannot list", zap.String("resource", sel.Resource.Resource), zap.Error(err))
		}
		if !s.a.sleep(ctx, delay) {
			return
		}
	}
}

// watch is false when ctx is over.
func (s *source) watch(ctx context.Context, sel client.Selector, rev string, h handler) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := s.a.Client.Watch(ctx, sel, rev)
	if err != nil {
		return ctx.Err() == nil
	}
	for ev := range events {
		if ev.Type == watch.Error {
			break
		}
		if !h.one(ctx, ev) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (s *source) podList(ctx context.Context, objs []client.Object) bool {
	pods := make([]*corev1.Pod, 0, len(objs))
	for _, o := range objs {
		pods = append(pods, o.(*corev1.Pod))
	}
	return s.send(ctx, update{list: &pods})
}

func (s *source) podEvent(ctx context.Context, ev watch.Event) bool {
	pod, ok := ev.Object.(*corev1.Pod)
	if !ok || ev.Type == watch.Bookmark {
		return true
	}
	return s.send(ctx, update{pod: pod, gone: ev.Type == watch.Deleted})
}

func (s *source) send(ctx context.Context, u update) bool {
	select {
	case <-ctx.Done():
		return false
	case s.updates <- u:
		return true
	}
}

// refs wakes the pods that use an object of the kind when it changes; all of
// them after a gap.
func (s *source) refs(kind string) handler {
	first := true
	return handler{
		list: func(context.Context, []client.Object) bool {
			if !first {
				for _, w := range s.a.all() {
					w.update(func(in *inbox) { in.refresh = true })
				}
			}
			first = false
			return true
		},
		one: func(_ context.Context, ev watch.Event) bool {
			if obj, ok := ev.Object.(client.Object); ok && ev.Type != watch.Bookmark {
				s.wakeUsers(kind, obj)
			}
			return true
		},
	}
}

func (s *source) wakeUsers(kind string, obj client.Object) {
	for _, w := range s.a.all() {
		if pod := w.current.Load(); pod.Namespace == obj.GetNamespace() && slices.Contains(references(pod, kind), obj.GetName()) {
			w.update(func(in *inbox) { in.refresh = true })
		}
	}
}

// references are the names of the ConfigMaps or Secrets a pod uses.
func references(pod *corev1.Pod, kind string) []string {
	var r refs
	for i := range pod.Spec.Volumes {
		r.volume(&pod.Spec.Volumes[i])
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			r.container(&list[i])
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		r.secrets = append(r.secrets, s.Name)
	}
	if kind == "Secret" {
		return r.secrets
	}
	return r.configMaps
}

type refs struct{ configMaps, secrets []string }

func (r *refs) volume(v *corev1.Volume) {
	if v.ConfigMap != nil {
		r.configMaps = append(r.configMaps, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		r.secrets = append(r.secrets, v.Secret.SecretName)
	}
	if v.Projected == nil {
		return
	}
	for _, p := range v.Projected.Sources {
		if p.ConfigMap != nil {
			r.configMaps = append(r.configMaps, p.ConfigMap.Name)
		}
		if p.Secret != nil {
			r.secrets = append(r.secrets, p.Secret.Name)
		}
	}
}

func (r *refs) container(c *corev1.Container) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			r.configMaps = append(r.configMaps, from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			r.secrets = append(r.secrets, from.SecretRef.Name)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			continue
		}
		if k := v.ValueFrom.ConfigMapKeyRef; k != nil {
			r.configMaps = append(r.configMaps, k.Name)
		}
		if k := v.ValueFrom.SecretKeyRef; k != nil {
			r.secrets = append(r.secrets, k.Name)
		}
	}
}
