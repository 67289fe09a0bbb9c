package deployment

import (
	"cmp"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// rollout is what one sync knows of a Deployment.
type rollout struct {
	stored *appsv1.Deployment // as it was read; shared
	d      *appsv1.Deployment // a copy, whose status the sync changes and writes at its end

	old []*appsv1.ReplicaSet // of other templates, oldest first
	new *appsv1.ReplicaSet   // of the Deployment's template; nil: there is none yet

	rolls    bool   // whether progress is expected: neither paused, nor only scaled
	revision string // to be written to the Deployment; empty: not known
}

// newRollout finds out which of a Deployment's ReplicaSets are old and which is the new
// one: the oldest with its template, if there are several.
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

// all are the ReplicaSets, the new one last.
func (ro *rollout) all() []*appsv1.ReplicaSet {
	if ro.new == nil {
		return slices.Clone(ro.old)
	}
	return append(slices.Clone(ro.old), ro.new)
}

// active are those with replicas.
func (ro *rollout) active() []*appsv1.ReplicaSet { return active(ro.all()) }

// put replaces a ReplicaSet by what it has become.
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

// unchanged reports whether there is nothing to write to the Deployment.
func (ro *rollout) unchanged() bool {
	return equality.Semantic.DeepEqual(ro.stored.Status, ro.d.Status) &&
		(ro.revision == "" || ro.stored.Annotations[revisionAnnotation] == ro.revision)
}

func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(sets), func(rs *appsv1.ReplicaSet) bool { return size(rs) == 0 })
}

// compareAges puts the older first, and of two as old the one whose name comes first.
func compareAges(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// sameTemplate compares templates without the hash that tells ReplicaSets apart.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := *a, *b
	x.Labels, y.Labels = maps.Clone(x.Labels), maps.Clone(y.Labels)
	delete(x.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(y.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(&x, &y)
}
