package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/client"
	"monopod/controllers/podstate"
)

// verdict on one pod.
type verdict int

const (
	ignore verdict = iota
	keep
	release
	adopt
)

// judge decides what a pod is to rs: kept when it owns and selects it, released
// when it no longer selects it, adopted when nobody owns it.
func judge(rs *appsv1.ReplicaSet, selector labels.Selector, pod *corev1.Pod) verdict {
	selected := selector.Matches(labels.Set(pod.Labels))
	owner := metav1.GetControllerOfNoCopy(pod)
	switch {
	case owner != nil && owner.UID != rs.UID:
		return ignore
	case owner != nil && selected:
		return keep
	case owner != nil && rs.DeletionTimestamp == nil:
		return release
	case owner == nil && selected && rs.DeletionTimestamp == nil && podstate.Active(pod):
		return adopt
	}
	return ignore
}

// claim returns the pods of rs, finished ones left out and terminating ones
// kept, after adopting and releasing what must be.
func (r *run) claim(ctx context.Context, rs *appsv1.ReplicaSet, selector labels.Selector, pods []*corev1.Pod) ([]*corev1.Pod, error) {
	var mine []*corev1.Pod
	var errs []error
	var mayAdopt func() error
	for _, pod := range pods {
		if podstate.Finished(pod) {
			continue
		}
		var err error
		switch judge(rs, selector, pod) {
		case keep:
			mine = append(mine, pod)
		case release:
			err = r.release(ctx, rs, pod)
		case adopt:
			if mayAdopt == nil {
				mayAdopt = r.recheck(ctx, rs)
			}
			var adopted *corev1.Pod
			if adopted, err = r.adopt(ctx, rs, pod, mayAdopt); adopted != nil {
				mine = append(mine, adopted)
			}
		}
		errs = append(errs, err)
	}
	return mine, errors.Join(errs...)
}

// claimStored is claim of what the API has: the index may not know yet of pods that
// are older than rs, since nothing orders what the two watches tell. Pods are neither
// made nor deleted without this look.
func (r *run) claimStored(ctx context.Context, rs *appsv1.ReplicaSet, selector labels.Selector) ([]*corev1.Pod, error) {
	pods, err := client.List[*corev1.Pod](ctx, r.deps.Client, client.Selector{Namespace: rs.Namespace, Labels: selector})
	if err != nil {
		return nil, err
	}
	return r.claim(ctx, rs, selector, pods)
}

// recheck asks for rs afresh, once: it must be the same and not be deleted.
func (r *run) recheck(ctx context.Context, rs *appsv1.ReplicaSet) func() error {
	fresh, err := client.Get[*appsv1.ReplicaSet](ctx, r.deps.Client, rs.Namespace, rs.Name)
	switch {
	case err != nil:
	case fresh.UID != rs.UID:
		err = fmt.Errorf("replicaset %s/%s is another one now: uid %s, was %s", rs.Namespace, rs.Name, fresh.UID, rs.UID)
	case fresh.DeletionTimestamp != nil:
		err = fmt.Errorf("replicaset %s/%s is being deleted", rs.Namespace, rs.Name)
	}
	return func() error { return err }
}

// errNotOrphan stops an adoption if another controller was faster.
var errNotOrphan = errors.New("pod is no longer an orphan")

// adopt makes rs the pod's controller; nil when the pod is gone or taken.
func (r *run) adopt(ctx context.Context, rs *appsv1.ReplicaSet, pod *corev1.Pod, may func() error) (*corev1.Pod, error) {
	if err := may(); err != nil {
		return nil, fmt.Errorf("cannot adopt pod %s: %w", pod.Name, err)
	}
	adopted, err := client.Update(ctx, r.deps.Client, pod, "", func(p *corev1.Pod) error {
		if metav1.IsControlledBy(p, rs) {
			return nil // our own adoption, which the index has not seen yet
		}
		if p.UID != pod.UID || p.DeletionTimestamp != nil || metav1.GetControllerOfNoCopy(p) != nil {
			return errNotOrphan
		}
		p.OwnerReferences = append(p.OwnerReferences, ownerRef(rs))
		return nil
	})
	if errors.Is(err, errNotOrphan) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return adopted, nil
}

// release removes rs from the pod's owners.
func (r *run) release(ctx context.Context, rs *appsv1.ReplicaSet, pod *corev1.Pod) error {
	_, err := client.Update(ctx, r.deps.Client, pod, "", func(p *corev1.Pod) error {
		p.OwnerReferences = slices.DeleteFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == rs.UID })
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil // gone, or without owners already
	}
	return err
}

func ownerRef(rs *appsv1.ReplicaSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
}

// split divides a ReplicaSet's pods into active and terminating ones.
func split(pods []*corev1.Pod) (active, terminating []*corev1.Pod) {
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			terminating = append(terminating, p)
		} else {
			active = append(active, p)
		}
	}
	return active, terminating
}
