package deployment

import (
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
)

// rollback gives the Deployment the template and the annotations of a ReplicaSet, and removes the annotation that
// requests it. The annotation replaced spec.rollbackTo of extensions/v1beta1; kubectl rollout undo writes the
// template itself.
func (r *run) rollback(ctx context.Context, ro *rollout, revision int64) error {
	if revision == 0 {
		if revision = ro.lastRevision(); revision == 0 {
			r.eventf(ro, true, "DeploymentRollbackRevisionNotFound", "Unable to find last revision.")
			return r.rolledBack(ctx, ro, nil)
		}
	}
	all := ro.all()
	i := slices.IndexFunc(all, func(rs *appsv1.ReplicaSet) bool { return revisionOf(rs) == revision })
	switch {
	case i < 0:
		r.eventf(ro, true, "DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to.")
		return r.rolledBack(ctx, ro, nil)
	case sameTemplate(&all[i].Spec.Template, &ro.d.Spec.Template):
		r.eventf(ro, true, "DeploymentRollbackTemplateUnchanged",
			"The rollback revision contains the same template as current deployment %q", ro.d.Name)
		return r.rolledBack(ctx, ro, nil)
	}
	err := r.rolledBack(ctx, ro, all[i])
	if err == nil {
		r.eventf(ro, false, "DeploymentRollback", "Rolled back deployment %q to revision %d", ro.d.Name, revision)
	}
	return err
}

// lastRevision returns the second highest revision; 0 if there is none.
func (ro *rollout) lastRevision() int64 {
	var all []int64
	for _, rs := range ro.all() {
		all = append(all, revisionOf(rs))
	}
	slices.Sort(all)
	if len(all) < 2 {
		return 0
	}
	return max(all[len(all)-2], 0)
}

// rolledBack removes the annotation and, unless rs is nil, copies its template and annotations.
func (r *run) rolledBack(ctx context.Context, ro *rollout, rs *appsv1.ReplicaSet) error {
	_, err := client.Update(ctx, r.deps.Client, ro.stored, "", func(cur *appsv1.Deployment) error {
		if cur.UID != ro.stored.UID || cur.Generation != ro.stored.Generation {
			return apierrors.NewConflict(client.Deployments.GroupResource(), cur.Name, errChanged)
		}
		delete(cur.Annotations, rollbackAnnotation)
		if rs == nil {
			return nil
		}
		maps.DeleteFunc(cur.Annotations, func(key, _ string) bool { return copied(key) })
		for key, value := range rs.Annotations {
			if copied(key) {
				cur.Annotations[key] = value
			}
		}
		rs.Spec.Template.DeepCopyInto(&cur.Spec.Template)
		delete(cur.Spec.Template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		return nil
	})
	return err
}
