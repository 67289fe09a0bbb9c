package claims

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
)

// errInUse has upstream's text.
var errInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// takeOncePod assigns a ReadWriteOncePod claim to the pod unless another pod has it. The scheduler does the same,
// except for pods that set spec.nodeName themselves.
func (c *Claims) takeOncePod(ctx context.Context, uid types.UID, pvc *corev1.PersistentVolumeClaim, ran bool) error {
	if !slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteOncePod) {
		return nil
	}
	if !ran {
		inUse, err := c.inUse(ctx, pvc, uid)
		if err != nil {
			return err
		}
		if inUse {
			return errInUse
		}
	}
	if !c.take(types.NamespacedName{Namespace: pvc.Namespace, Name: pvc.Name}, uid) {
		return errInUse
	}
	return nil
}

// inUse reports whether another pod that has not ended uses the claim, including pods from before a restart of the
// agent.
func (c *Claims) inUse(ctx context.Context, pvc *corev1.PersistentVolumeClaim, uid types.UID) (bool, error) {
	pods, err := client.List[*corev1.Pod](ctx, c.Client, client.Selector{
		Namespace: pvc.Namespace, Fields: fields.OneTermEqualSelector("spec.nodeName", c.Node().Name)})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		same := pod.UID == uid || pod.Annotations[corev1.MirrorPodAnnotationKey] == string(uid)
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		return !same && !ended && slices.Contains(claim.AllOf(pod), pvc.Name) && (ranBefore(pod) || c.Made(pod.UID))
	}), nil
}

// take assigns the claim to the pod unless another pod has it.
func (c *Claims) take(name types.NamespacedName, pod types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if user, taken := c.users[name]; taken {
		return user == pod
	}
	c.users[name] = pod
	return true
}

// Drop releases all ReadWriteOncePod claims of the pod and returns their names.
func (c *Claims) Drop(pod types.UID) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	var free []types.NamespacedName
	for name, user := range c.users {
		if user == pod {
			delete(c.users, name)
			free = append(free, name)
		}
	}
	return free
}
