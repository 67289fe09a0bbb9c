package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/pod"
	"monopod/agent/podapi/spec"
	"monopod/agent/runtime/relist"
	"monopod/agent/source"
	"monopod/agent/source/static"
)

// statics runs the static pods.
type statics struct {
	clock     clock.PassiveClock
	pods      *pods
	manifests *static.Source
	mirrors   *source.Mirrors
	// resumed returns the static pods that a cancelled shutdown has stopped.
	resumed func() map[types.UID]bool

	want map[types.UID]*corev1.Pod // used only by the loop
	wake chan struct{}             // contains one value when waiting pods may start
}

// ended is called when nothing is left of a static pod.
func (s *statics) ended(object *corev1.Pod) {
	s.mirrors.Ended(object)
	s.retry()
}

// retry makes the loop call run.
func (s *statics) retry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// expect sets the desired static pods.
func (s *statics) expect(files []*corev1.Pod) {
	s.want = map[types.UID]*corev1.Pod{}
	for _, object := range files {
		s.want[object.UID] = object
	}
	s.mirrors.SetStatic(files)
}

// predecessors returns the pods in the runtime that have the name of a static pod but another UID, because its file
// changed while no agent ran.
func (s *statics) predecessors(found map[types.UID]*relist.Held) map[types.UID]*relist.Held {
	names := map[types.NamespacedName]bool{}
	for _, object := range s.want {
		names[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}] = true
	}
	old := map[types.UID]*relist.Held{}
	for uid, r := range found {
		if s.want[uid] == nil && names[types.NamespacedName{Namespace: r.Identity.Namespace, Name: r.Identity.Name}] {
			old[uid] = r
		}
	}
	return old
}

// run ends static pods that are no longer desired, and starts those that do not run. A pod that was ended and is
// desired again starts when nothing is left of it.
func (s *statics) run(ctx context.Context, found map[types.UID]*relist.Held) {
	resumed := s.resumed()
	for p := range s.pods.all() {
		if object := p.Object(); p.Static() && (s.want[p.UID()] == nil || resumed[p.UID()]) &&
			object.DeletionTimestamp == nil {
			p.Changed(s.withdrawn(object))
		}
	}
	for uid, object := range s.want {
		if !s.pods.exists(uid) {
			s.pods.add(ctx, object, pod.Options{Static: true, Relist: found[uid] != nil})
		}
	}
}

// withdrawn returns the pod of a removed file as if it was deleted in the API.
func (s *statics) withdrawn(object *corev1.Pod) *corev1.Pod {
	object = object.DeepCopy()
	object.DeletionTimestamp = new(metav1.NewTime(s.clock.Now()))
	object.DeletionGracePeriodSeconds = new(int64(spec.Grace(object) / time.Second))
	return object
}

// runs reports whether the node has the static pod with that UID and name.
func (s *statics) runs(uid types.UID, namespace, name string) bool {
	p := s.pods.get(uid)
	return p != nil && p.Static() && p.Object().Namespace == namespace && p.Object().Name == name
}
