package deployment

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations of ReplicaSets; the first one is also set on Deployments.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history" // its earlier revisions, separated by commas
	// the Deployment's replicas when the ReplicaSet was last scaled
	desiredReplicasAnnotation = "deployment.kubernetes.io/desired-replicas"
	maxReplicasAnnotation     = "deployment.kubernetes.io/max-replicas" // the same plus the surge
	rollbackAnnotation        = "deprecated.deployment.rollback.to"

	maxHistory = 2000 // maximum length of historyAnnotation in characters (upstream maxRevHistoryLengthInChars)
)

// copied reports whether an annotation of a Deployment is copied to its new ReplicaSet.
func copied(key string) bool {
	switch key {
	case corev1.LastAppliedConfigAnnotation, revisionAnnotation, historyAnnotation,
		desiredReplicasAnnotation, maxReplicasAnnotation, rollbackAnnotation:
		return false
	}
	return true
}

// revisionOf returns the revision of a ReplicaSet; 0 if it has none or an invalid one.
func revisionOf(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.Annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// nextRevision returns the highest revision of the old ReplicaSets plus 1.
func (ro *rollout) nextRevision() int64 {
	last := int64(0)
	for _, rs := range ro.old {
		last = max(last, revisionOf(rs))
	}
	return last + 1
}

// annotated returns the annotations that the new ReplicaSet should have: its own, the Deployment's, and the revision
// unless it already has a higher one. Its previous revision is appended to its history.
func annotated(d *appsv1.Deployment, rs *appsv1.ReplicaSet, revision int64) map[string]string {
	next := maps.Clone(rs.Annotations)
	if next == nil {
		next = map[string]string{}
	}
	for k, v := range d.Annotations {
		if copied(k) {
			next[k] = v
		}
	}
	before, set := rs.Annotations[revisionAnnotation]
	if had, err := strconv.ParseInt(before, 10, 64); set && err != nil || had >= revision {
		return next
	}
	next[revisionAnnotation] = strconv.FormatInt(revision, 10)
	if set {
		next[historyAnnotation] = withHistory(next[historyAnnotation], before)
	}
	return next
}

// withHistory appends a revision and drops the oldest ones beyond maxHistory.
func withHistory(history, revision string) string {
	if history == "" {
		return revision
	}
	all := append(strings.Split(history, ","), revision)
	for len(all) > 1 && len(strings.Join(all, ",")) > maxHistory {
		all = all[1:]
	}
	return strings.Join(all, ",")
}

// noteScale records on a ReplicaSet the Deployment's replicas and maximum from which its size was computed.
func noteScale(d *appsv1.Deployment, rs *appsv1.ReplicaSet) {
	metav1.SetMetaDataAnnotation(&rs.ObjectMeta, desiredReplicasAnnotation, strconv.Itoa(int(desired(d))))
	metav1.SetMetaDataAnnotation(&rs.ObjectMeta, maxReplicasAnnotation, strconv.Itoa(int(most(d))))
}

// keepRevision copies the Deployment's annotations and minReadySeconds to its new ReplicaSet, if that exists, and the
// ReplicaSet's revision to the Deployment.
func (r *run) keepRevision(ctx context.Context, ro *rollout) error {
	if ro.new == nil {
		return nil
	}
	annotations := annotated(ro.d, ro.new, ro.nextRevision())
	if !maps.Equal(annotations, ro.new.Annotations) || ro.new.Spec.MinReadySeconds != ro.d.Spec.MinReadySeconds {
		next, err := r.change(ctx, ro.new, func(cur *appsv1.ReplicaSet) {
			cur.Annotations = annotated(ro.d, cur, ro.nextRevision())
			cur.Spec.MinReadySeconds = ro.d.Spec.MinReadySeconds
		})
		if err != nil {
			return err
		}
		ro.put(next)
	}
	ro.revision = ro.new.Annotations[revisionAnnotation]
	if conditionOf(&ro.d.Status, appsv1.DeploymentProgressing) == nil { // adopted, or the deadline was set later
		ro.noteProgress(corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", ro.new.Name),
			r.deps.Clock.Now())
	}
	return nil
}
