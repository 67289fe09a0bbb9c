package deployment

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
)

// create creates the new ReplicaSet with as many replicas as the surge allows. If another object has its name, create
// increments the Deployment's collisionCount and leaves ro.new nil; the next sync tries another name.
func (r *run) create(ctx context.Context, ro *rollout) error {
	rs, err := newReplicaSet(ro.d)
	if err != nil {
		return err
	}
	rs.OwnerReferences = []metav1.OwnerReference{r.adopter.Ref(ro.d)}
	rs.Spec.Replicas = new(grown(ro.d, nil, ro.old))
	rs.Annotations = annotated(ro.d, rs, ro.nextRevision())
	noteScale(ro.d, rs)
	name := rs.Name
	made, err := r.deps.Client.Create(ctx, rs)
	switch {
	case err == nil:
		ro.new = made.(*appsv1.ReplicaSet)
		ro.revision = ro.new.Annotations[revisionAnnotation]
		ro.noteProgress(corev1.ConditionTrue, reasonCreated, fmt.Sprintf("Created new replica set %q", name),
			r.deps.Clock.Now())
		if n := size(ro.new); n > 0 {
			r.eventf(ro, false, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", name, n)
		}
		return nil
	case apierrors.IsAlreadyExists(err):
		return r.handleNameTaken(ctx, ro, name)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the namespace is terminating
	}
	text := fmt.Sprintf("Failed to create new replica set %q: %v", name, err)
	ro.noteProgress(corev1.ConditionFalse, reasonCreateError, text, r.deps.Clock.Now())
	r.eventf(ro, true, reasonCreateError, "%s", text)
	return err
}

// handleNameTaken handles a name that is in use. If the object is the Deployment's own ReplicaSet, which an interrupted
// sync created and the index lacks, it becomes ro.new; otherwise it increments collisionCount.
func (r *run) handleNameTaken(ctx context.Context, ro *rollout, name string) error {
	rs, err := client.Get[*appsv1.ReplicaSet](ctx, r.deps.Client, ro.d.Namespace, name)
	if err != nil {
		return err
	}
	if metav1.IsControlledBy(rs, ro.d) && sameTemplate(&rs.Spec.Template, &ro.d.Spec.Template) {
		ro.new = rs
		return r.keepRevision(ctx, ro)
	}
	count := int32(1)
	if ro.d.Status.CollisionCount != nil {
		count += *ro.d.Status.CollisionCount
	}
	ro.d.Status.CollisionCount = &count
	r.deps.Log.Info("name of a new ReplicaSet is taken, trying another one", zap.String("namespace", ro.d.Namespace),
		zap.String("deployment", ro.d.Name), zap.String("replicaset", name), zap.Int32("collisionCount", count))
	return nil
}

// newReplicaSet returns a ReplicaSet with the Deployment's template. A hash in its name, labels, selector and
// template distinguishes it from others.
func newReplicaSet(d *appsv1.Deployment) (*appsv1.ReplicaSet, error) {
	hash, err := hashOf(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		return nil, err
	}
	template, selector := d.Spec.Template.DeepCopy(), d.Spec.Selector.DeepCopy()
	template.Labels = withHash(template.Labels, hash)
	selector.MatchLabels = withHash(selector.MatchLabels, hash)
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: maps.Clone(template.Labels)},
		Spec:       appsv1.ReplicaSetSpec{MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: *template},
	}, nil
}

func withHash(labels map[string]string, hash string) map[string]string {
	next := maps.Clone(labels)
	if next == nil {
		next = map[string]string{}
	}
	next[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return next
}

// hashOf computes the pod-template-hash. The hash only names new ReplicaSets; existing ones are recognized by their
// template, so that a version of Kubernetes with another hash function can take over.
func hashOf(template *corev1.PodTemplateSpec, collisions *int32) (string, error) {
	text, err := json.Marshal(template)
	return owned.Hash(text, collisions), err
}
