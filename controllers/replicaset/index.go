package replicaset

import (
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podIndex holds pods by the UID of their controller, and those without one by
// namespace. It trails the API by the watch's delay, which is what expectations
// are for.
type podIndex struct {
	mu      sync.RWMutex // guards what follows
	owned   map[types.UID]podSet
	orphans map[string]podSet
}

type podSet map[types.UID]*corev1.Pod

func newPodIndex() *podIndex {
	return &podIndex{owned: map[types.UID]podSet{}, orphans: map[string]podSet{}}
}

// change replaces old by new, either of which may be nil.
func (x *podIndex) change(old, new *corev1.Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old != nil {
		x.remove(old)
	}
	if new != nil {
		x.add(new)
	}
}

func (x *podIndex) add(pod *corev1.Pod) {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		put(x.owned, owner.UID, pod)
		return
	}
	put(x.orphans, pod.Namespace, pod)
}

func (x *podIndex) remove(pod *corev1.Pod) {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		drop(x.owned, owner.UID, pod)
		return
	}
	drop(x.orphans, pod.Namespace, pod)
}

func put[K comparable](sets map[K]podSet, k K, pod *corev1.Pod) {
	if sets[k] == nil {
		sets[k] = podSet{}
	}
	sets[k][pod.UID] = pod
}

func drop[K comparable](sets map[K]podSet, k K, pod *corev1.Pod) {
	delete(sets[k], pod.UID)
	if len(sets[k]) == 0 {
		delete(sets, k)
	}
}

// of returns the pods that rs controls.
func (x *podIndex) of(rs *appsv1.ReplicaSet) []*corev1.Pod {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return values(nil, x.owned[rs.UID])
}

// ofOrOrphan returns the pods that rs controls and those nobody does.
func (x *podIndex) ofOrOrphan(rs *appsv1.ReplicaSet) []*corev1.Pod {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return values(values(nil, x.owned[rs.UID]), x.orphans[rs.Namespace])
}

func values(to []*corev1.Pod, set podSet) []*corev1.Pod {
	for _, pod := range set {
		to = append(to, pod)
	}
	return to
}
