package deployment

import (
	"cmp"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// rollout is the state of a Deployment during one sync.
type rollout struct {
	stored *appsv1.Deployment // as it was read; shared
	d      *appsv1.Deployment // a copy; the sync changes its status and writes it at the end

	old []*appsv1.ReplicaSet // with other templates, oldest first
	new *appsv1.ReplicaSet   // with the Deployment's template; nil: does not exist yet

	rolls    bool   // the Deployment is neither paused nor only scaled
	revision string // to write to the Deployment; empty: unknown
}

// newRollout divides a Deployment's ReplicaSets into old ones and the new one. If several have its template, the
// oldest of them is the new one.
func newRollout(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) *rollout {
	ro := &rollout{stored: d, d: d.DeepCopy()}
	slices.SortFunc(sets, compareAges)
	for _, rs := range sets {
		if ro.new == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			ro.new = rs
		} else {
			ro.old = append(ro.old, rs)
		}
	}
	return ro
}

// all returns the ReplicaSets, the new one last.
func (ro *rollout) all() []*appsv1.ReplicaSet {
	if ro.new == nil {
		return slices.Clone(ro.old)
	}
	return append(slices.Clone(ro.old), ro.new)
}

// active returns the ReplicaSets with replicas.
func (ro *rollout) active() []*appsv1.ReplicaSet { return active(ro.all()) }

// put replaces a ReplicaSet by its updated version.
func (ro *rollout) put(rs *appsv1.ReplicaSet) {
	if ro.new != nil && ro.new.UID == rs.UID {
		ro.new = rs
		return
	}
	for i := range ro.old {
		if ro.old[i].UID == rs.UID {
			ro.old[i] = rs
		}
	}
}

func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(sets), func(rs *appsv1.ReplicaSet) bool { return size(rs) == 0 })
}

// compareAges orders by age, oldest first, then by name.
func compareAges(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// sameTemplate compares templates without the pod-template-hash label.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := *a, *b
	x.Labels, y.Labels = maps.Clone(x.Labels), maps.Clone(y.Labels)
	delete(x.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(y.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(&x, &y)
}
