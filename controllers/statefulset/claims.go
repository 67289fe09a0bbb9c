package statefulset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
)

// claimName returns the name of an ordinal's claim.
func claimName(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, ordinal int) string {
	return template.Name + "-" + podName(set, ordinal)
}

// claimFor returns a new claim of an ordinal.
func (r *run) claimFor(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim,
	ordinal int) *corev1.PersistentVolumeClaim {
	claim := template.DeepCopy()
	claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	claim.Namespace, claim.Name = set.Namespace, claimName(set, template, ordinal)
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
	if policyOf(set).WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
		claim.OwnerReferences = append(claim.OwnerReferences, r.Adopter.Ref(set))
	}
	return claim
}

// each calls f with the claims of an ordinal; claim is nil if it does not exist.
func (r *run) each(ctx context.Context, st *syncState, ordinal int,
	f func(template, claim *corev1.PersistentVolumeClaim) error) error {
	var errs []error
	for i := range st.set.Spec.VolumeClaimTemplates {
		template := &st.set.Spec.VolumeClaimTemplates[i]
		claim, err := client.Get[*corev1.PersistentVolumeClaim](ctx, r.deps.Client, st.set.Namespace,
			claimName(st.set, template, ordinal))
		if apierrors.IsNotFound(err) {
			claim, err = nil, nil
		}
		if err == nil {
			err = f(template, claim)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// createClaims creates the missing claims of a replica.
func (r *run) createClaims(ctx context.Context, st *syncState, rep *replica) error {
	return r.each(ctx, st, rep.ordinal, func(template, claim *corev1.PersistentVolumeClaim) error {
		switch {
		case claim != nil && claim.DeletionTimestamp != nil && rep.pod == nil:
			return fmt.Errorf("pvc %s is being deleted", claim.Name)
		case claim != nil:
			return nil
		}
		next := r.claimFor(st.set, template, rep.ordinal)
		name := next.Name
		_, err := r.deps.Client.Create(ctx, next)
		switch {
		case owned.NamespaceTerminating(err):
		case err == nil:
			r.events.Eventf(st.set, corev1.EventTypeNormal, "SuccessfulCreate",
				"create Claim %s Pod %s in StatefulSet %s success", name, podName(st.set, rep.ordinal), st.set.Name)
		default:
			r.events.Eventf(st.set, corev1.EventTypeWarning, "FailedCreate",
				"create Claim %s for Pod %s in StatefulSet %s failed error: %v", name,
				podName(st.set, rep.ordinal), st.set.Name, err)
		}
		return err
	})
}

// stale reports whether a claim is owned by a previous pod of the same name, so that the garbage collector will delete
// it.
func (r *run) stale(ctx context.Context, st *syncState, ordinal int) (bool, error) {
	stale := false
	err := r.each(ctx, st, ordinal, func(_, claim *corev1.PersistentVolumeClaim) error {
		stale = stale || claim != nil && slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
			return ref.Kind == "Pod" && ref.Name == podName(st.set, ordinal)
		})
		return nil
	})
	return stale, err
}

func policyOf(set *appsv1.StatefulSet) appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	if set.Spec.PersistentVolumeClaimRetentionPolicy == nil {
		return appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
	}
	return *set.Spec.PersistentVolumeClaimRetentionPolicy
}

// retain sets the owners of a replica's claims according to persistentVolumeClaimRetentionPolicy: the set for
// whenDeleted Delete, the pod for whenScaled Delete if the pod is condemned, and none if the claim has another
// controller.
func (r *run) retain(ctx context.Context, st *syncState, rep *replica) error {
	return r.each(ctx, st, rep.ordinal, func(_, claim *corev1.PersistentVolumeClaim) error {
		if claim == nil || slices.EqualFunc(claim.OwnerReferences, r.owners(st.set, rep, claim), sameOwner) {
			return nil
		}
		_, err := client.Update(ctx, r.deps.Client, claim, "", func(cur *corev1.PersistentVolumeClaim) error {
			cur.OwnerReferences = r.owners(st.set, rep, cur)
			return nil
		})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// owners returns the owner references that a claim of a replica should have.
func (r *run) owners(set *appsv1.StatefulSet, rep *replica,
	claim *corev1.PersistentVolumeClaim) []metav1.OwnerReference {
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	others := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(ref metav1.OwnerReference) bool {
		return ref.UID == set.UID || ref.UID == rep.pod.UID
	})
	if slices.ContainsFunc(others, controls) {
		return others
	}
	switch policy, condemned := policyOf(set), !wanted(set, rep.ordinal); {
	case condemned && policy.WhenScaled == remove:
		return append(others, *metav1.NewControllerRef(rep.pod, corev1.SchemeGroupVersion.WithKind("Pod")))
	case policy.WhenDeleted == remove:
		return append(others, r.Adopter.Ref(set))
	}
	return others
}

func sameOwner(a, b metav1.OwnerReference) bool { return a.UID == b.UID && controls(a) == controls(b) }

func controls(ref metav1.OwnerReference) bool { return ref.Controller != nil && *ref.Controller }
