package agent

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/images/gc"
	"monopod/agent/pod"
	"monopod/agent/pod/images"
	"monopod/agent/pressure/evictor"
	"monopod/agent/resources/placement"
	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/guard"
)

var (
	_ evictor.Pod   = (*pod.Pod)(nil)
	_ gc.RunningPod = (*pod.Pod)(nil)
	_ placement.Pod = (*pod.Pod)(nil)
)

// pods contains the node's pods. It is safe for concurrent use.
type pods struct {
	clock    clock.Clock
	guard    *guard.Guard
	node     *pod.Node // set before the first pod
	admitter *admitter // set before the first pod
	// removing is called for a pod of which nothing is left, before a new pod of the same name starts.
	removing func(*pod.Pod)
	// removed is called after removing, when a new pod of the same name may have started.
	removed func(ctx context.Context, p *pod.Pod)
	workers sync.WaitGroup

	mu    sync.RWMutex // guards the fields below
	byUID map[types.UID]*pod.Pod
	names map[types.NamespacedName]*pod.Pod // the newest pod of each name
}

func newPods(clk clock.Clock, g *guard.Guard) *pods {
	return &pods{clock: clk, guard: g, byUID: map[types.UID]*pod.Pod{}, names: map[types.NamespacedName]*pod.Pod{}}
}

// add creates a pod and starts its worker. The worker waits until the pod is admitted, an earlier pod of the same
// name is removed, and preempted pods have ended. A worker that only cleans up (o.Gone) does not wait for the earlier
// pod.
func (s *pods) add(ctx context.Context, object *corev1.Pod, o pod.Options) {
	p := pod.New(ctx, s.node, object, o)
	name := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	s.mu.Lock()
	s.byUID[object.UID] = p
	switch old := s.names[name]; {
	case old == nil:
		s.names[name] = p
	case !o.Gone:
		p.After(old)
		s.names[name] = p
	}
	s.mu.Unlock()
	s.admitter.admit(ctx, p, o.Gone)
	s.guard.Go(&s.workers, "pod", func() {
		s.guard.Keep(ctx, s.clock, "pod", func() { p.Run(ctx) })
		s.guard.Healthy("pod", p.FullName())
		s.drop(p, name)
		s.removed(ctx, p)
	})
}

func (s *pods) drop(p *pod.Pod, name types.NamespacedName) {
	defer func() { // also after a panic, because a new pod of the same name waits for it
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.byUID, p.UID())
		if s.names[name] == p {
			delete(s.names, name)
		}
		p.Ended()
	}()
	s.removing(p)
}

// wait waits for the workers of all pods, whose contexts have ended.
func (s *pods) wait() { s.workers.Wait() }

// get returns the pod with the UID; nil if there is none.
func (s *pods) get(uid types.UID) *pod.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byUID[uid]
}

// exists reports whether there is a pod with the UID.
func (s *pods) exists(uid types.UID) bool { return s.get(uid) != nil }

// named returns the newest pod with the name; nil if there is none.
func (s *pods) named(name types.NamespacedName) *pod.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.names[name]
}

// all returns the current pods.
func (s *pods) all() iter.Seq[*pod.Pod] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Values(slices.Collect(maps.Values(s.byUID)))
}

// podsAs returns the pods by UID, converted to P.
func podsAs[P any](s *pods, as func(*pod.Pod) P) map[types.UID]P {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[types.UID]P, len(s.byUID))
	for uid, p := range s.byUID {
		out[uid] = as(p)
	}
	return out
}

// objects returns the desired pods, by name.
func (s *pods) objects() []*corev1.Pod {
	var out []*corev1.Pod
	for p := range s.all() {
		out = append(out, p.Object())
	}
	return byName(out)
}

func byName(pods []*corev1.Pod) []*corev1.Pod {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// active returns the pods that hold resources: those admitted and not being stopped.
func (s *pods) active() []*corev1.Pod {
	var out []*corev1.Pod
	for p := range s.all() {
		if p.Active() {
			out = append(out, p.Allocated())
		}
	}
	return out
}

// activeExcept returns the pods that hold resources, except one.
func (s *pods) activeExcept(object *corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(s.active(), func(p *corev1.Pod) bool { return p.UID == object.UID })
}

// static reports whether a pod of the node comes from a file. It does not trust the object's annotations.
func (s *pods) static(object *corev1.Pod) bool {
	p := s.get(object.UID)
	return p != nil && p.Static()
}

// hasContainers reports whether the runtime has containers of the pod.
func (s *pods) hasContainers(uid types.UID) bool {
	p := s.get(uid)
	return p != nil && p.Observed() != nil && len(p.Observed().Containers) > 0
}

// volumeImages returns the images of all pods' volumes, by their full names.
func (s *pods) volumeImages() []string {
	var out []string
	for p := range s.all() {
		out = append(out, images.VolumeImages(p.Object())...)
	}
	return out
}

// usesClaim reports whether a pod that has not ended uses the PersistentVolumeClaim.
func (s *pods) usesClaim(namespace, name string) bool {
	for p := range s.all() {
		if object := p.Object(); !p.Over() && object.Namespace == namespace && slices.Contains(claim.AllOf(object), name) {
			return true
		}
	}
	return false
}

// wakeForClaim wakes pods that wait for the PersistentVolumeClaim.
func (s *pods) wakeForClaim(namespace, name string) {
	for p := range s.all() {
		if object := p.Object(); p.Volumes() == nil && object.Namespace == namespace &&
			slices.Contains(claim.AllOf(object), name) {
			p.Refresh()
		}
	}
}

// wakeForDrivers wakes pods whose volumes a CSI driver may now mount or unmount.
func (s *pods) wakeForDrivers() {
	for p := range s.all() {
		if p.Volumes() == nil || p.Ending() {
			p.Refresh()
		}
	}
}

// refresh makes pods update the content of their volumes.
func (s *pods) refresh(uses func(*corev1.Pod) bool) {
	for p := range s.all() {
		if uses(p.Object()) {
			p.Refresh()
		}
	}
}
