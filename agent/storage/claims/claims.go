// Package claims resolves the PersistentVolumeClaims of a node's pods, and tracks which pod uses a ReadWriteOncePod
// claim.
package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
)

// Deps are the dependencies of Claims. All are required.
type Deps struct {
	Client client.Client
	// Node returns the stored Node, or before its registration the one to register.
	Node func() *corev1.Node
	// Dir is the folder with the volumes of this node's provisioner.
	Dir string
	// Made reports whether the runtime has containers of a pod.
	Made func(types.UID) bool
}

// Claims are the claims of one node's pods.
type Claims struct {
	Deps

	mu    sync.Mutex                         // guards the fields below
	users map[types.NamespacedName]types.UID // the pod of each ReadWriteOncePod claim
}

// New returns Claims without pods.
func New(deps Deps) *Claims { return &Claims{Deps: deps, users: map[types.NamespacedName]types.UID{}} }

// ErrUnbound is the error for a claim that is not yet bound.
var ErrUnbound = errors.New("PVC is not bound")

// Volume returns the PersistentVolume of a pod's volume, and assigns a ReadWriteOncePod claim to the pod. ran reports
// whether the runtime has containers of the pod. Volume returns ErrUnbound for an unbound claim.
func (c *Claims) Volume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume,
	ran bool) (*corev1.PersistentVolume, error) {
	ran = ran || ranBefore(pod)
	name := claim.Of(pod, v)
	pvc, err := client.Get[*corev1.PersistentVolumeClaim](ctx, c.Client, pod.Namespace, name)
	if err == nil {
		err = mayUse(pod, v, pvc, ran)
	}
	if err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	pv, err := client.Get[*corev1.PersistentVolume](ctx, c.Client, "", pvc.Spec.VolumeName)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("persistentvolume %q not found", pvc.Spec.VolumeName)
	case err != nil:
		return nil, err
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID:
		return nil, fmt.Errorf("persistentvolume %q is not bound to the claim %s/%s", pv.Name, pvc.Namespace, pvc.Name)
	case !claim.UsableOn(pv, c.Node()):
		return nil, fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q: no matching NodeSelectorTerms", pv.Name)
	}
	return claim.WithLocalPath(pv, c.Dir), c.takeOncePod(ctx, pod.UID, pvc, ran)
}

// mayUse returns an error if the pod must not use the claim. Only pods that ran before may use a claim that is being
// deleted.
func mayUse(pod *corev1.Pod, v *corev1.Volume, c *corev1.PersistentVolumeClaim, ran bool) error {
	if v.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(pod, c); err != nil {
			return err
		}
	}
	switch {
	case c.DeletionTimestamp != nil && !ran:
		return fmt.Errorf("can't start pod because PVC %s/%s is being deleted", c.Namespace, c.Name)
	case !claim.Bound(c) || c.Status.Phase != corev1.ClaimBound:
		return ErrUnbound
	}
	return nil
}

// ranBefore reports whether a container of the pod has run, according to its status.
func ranBefore(pod *corev1.Pod) bool {
	ran := func(s corev1.ContainerStatus) bool { return s.ContainerID != "" }
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, ran) ||
		slices.ContainsFunc(pod.Status.ContainerStatuses, ran)
}
