package resourceclaim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/dynamic-resource-allocation/resourceclaim"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// annotation contains, on a generated claim, the name of the entry in the pod's spec.
const annotation = "resource.kubernetes.io/pod-claim-name"

// pod creates the pod's claims from templates. It also reserves the claims of a pod with a node: the scheduler has not
// if another client bound the pod.
func (r *run) pod(ctx context.Context, k follow.Key) error {
	pod, err := client.Get[*corev1.Pod](ctx, r.deps.Client, k.Namespace, k.Name)
	if err != nil {
		return notFound(err)
	}
	if ended(pod) || pod.DeletionTimestamp != nil {
		return nil
	}
	var errs []error
	var names []corev1.PodResourceClaimStatus
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		if entry.ResourceClaimTemplateName == nil {
			continue
		}
		name, err := r.ensure(ctx, pod, entry)
		switch {
		case err != nil:
			r.events.Eventf(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v", entry.Name,
				err)
			if !errors.Is(err, errNoTemplate) { // otherwise the template wakes the pod
				errs = append(errs, fmt.Errorf("pod claim %s: %w", entry.Name, err))
			}
		case name != "":
			names = append(names, corev1.PodResourceClaimStatus{Name: entry.Name, ResourceClaimName: &name})
		}
	}
	errs = append(errs, r.writeNames(ctx, pod, names))
	if pod.Spec.NodeName != "" {
		errs = append(errs, r.reserve(ctx, pod, names))
	}
	return errors.Join(errs...)
}

var errNoTemplate = errors.New("resource claim template")

// ensure returns the name of the claim for an entry of the pod. It creates the claim if it is missing.
func (r *run) ensure(ctx context.Context, pod *corev1.Pod, entry *corev1.PodResourceClaim) (string, error) {
	named, _, err := upstream.Name(pod, entry)
	if err == nil {
		if named == nil {
			return "", nil // the pod needs no claim for the entry
		}
		claim, err := client.Get[*resourcev1.ResourceClaim](ctx, r.deps.Client, pod.Namespace, *named)
		if err == nil {
			return *named, upstream.IsForPod(pod, claim, false)
		}
		if notFound(err) != nil {
			return "", err
		}
	}
	all, err := client.List[*resourcev1.ResourceClaim](ctx, r.deps.Client, client.Selector{Namespace: pod.Namespace})
	if err != nil {
		return "", err
	}
	for _, claim := range all { // finds a claim whose name was not written to the pod's status
		if claim.Annotations[annotation] == entry.Name && metav1.IsControlledBy(claim, pod) &&
			claim.DeletionTimestamp == nil {
			return claim.Name, nil
		}
	}
	return r.create(ctx, pod, entry)
}

func (r *run) create(ctx context.Context, pod *corev1.Pod, entry *corev1.PodResourceClaim) (string, error) {
	name := *entry.ResourceClaimTemplateName
	template, err := client.Get[*resourcev1.ResourceClaimTemplate](ctx, r.deps.Client, pod.Namespace, name)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%w %q: %w", errNoTemplate, name, err)
	}
	if err != nil {
		return "", fmt.Errorf("resource claim template %q: %w", name, err)
	}
	annotations := map[string]string{}
	maps.Copy(annotations, template.Spec.Annotations)
	annotations[annotation] = entry.Name
	wanted := &resourcev1.ResourceClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: prefix(pod.Name, entry.Name),
			Labels: maps.Clone(template.Spec.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: *template.Spec.Spec.DeepCopy(),
	}
	claim, err := r.deps.Client.Create(ctx, wanted)
	r.made.Add(wanted, err)
	if err != nil {
		return "", fmt.Errorf("create claim from template %q: %w", name, err)
	}
	return claim.GetName(), nil
}

// longestPrefix leaves room for a hyphen and five random characters in the 63 of a label.
const longestPrefix = 57

// prefix returns the prefix of a generated name: the names of the pod and the entry, both shortened by the same share
// if they are too long.
func prefix(pod, entry string) string {
	if n := len(pod) + len(entry) + 1; n > longestPrefix {
		pod, entry = pod[:len(pod)*longestPrefix/n], entry[:len(entry)*longestPrefix/n]
	}
	return pod + "-" + entry + "-"
}

// writeNames writes the names of generated claims to the pod's status.
func (r *run) writeNames(ctx context.Context, pod *corev1.Pod, names []corev1.PodResourceClaimStatus) error {
	next := slices.Clone(pod.Status.ResourceClaimStatuses)
	for _, is := range names {
		if i := slices.IndexFunc(next, func(s corev1.PodResourceClaimStatus) bool { return s.Name == is.Name }); i >= 0 {
			next[i] = is
		} else {
			next = append(next, is)
		}
	}
	if upstream.PodStatusEqual(next, pod.Status.ResourceClaimStatuses) {
		return nil
	}
	_, err := client.Update(ctx, r.deps.Client, pod, "status", func(cur *corev1.Pod) error {
		if cur.UID != pod.UID {
			return errReplaced
		}
		cur.Status.ResourceClaimStatuses = next
		return nil
	})
	return notFound(err)
}

// reserve reserves the pod's allocated claims for the pod.
func (r *run) reserve(ctx context.Context, pod *corev1.Pod, generated []corev1.PodResourceClaimStatus) error {
	with := *pod
	with.Status.ResourceClaimStatuses = append(slices.Clone(pod.Status.ResourceClaimStatuses), generated...)
	var errs []error
	for name := range upstream.PodClaims(&with) {
		claim, err := client.Get[*resourcev1.ResourceClaim](ctx, r.deps.Client, pod.Namespace, name)
		if err != nil {
			errs = append(errs, notFound(err))
			continue
		}
		if claim.Status.Allocation == nil || claim.DeletionTimestamp != nil || upstream.IsReservedForPod(pod, claim, false) {
			continue
		}
		_, err = client.Update(ctx, r.deps.Client, claim, "status", func(cur *resourcev1.ResourceClaim) error {
			if cur.UID != claim.UID || cur.Status.Allocation == nil || upstream.IsReservedForPod(pod, cur, false) {
				return errReplaced
			}
			cur.Status.ReservedFor = append(cur.Status.ReservedFor,
				resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
			return nil
		})
		if !errors.Is(err, errReplaced) {
			errs = append(errs, notFound(err))
		}
	}
	return errors.Join(errs...)
}

func protected(claim *resourcev1.ResourceClaim) bool {
	return slices.Contains(claim.Finalizers, resourcev1.Finalizer)
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
}
