package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
)

// Upstream's reasons why a pod's volumes exclude a node, or all.
const (
	whyImmediate = "pod has unbound immediate PersistentVolumeClaims"
	whyElsewhere = "node(s) didn't match PersistentVolume's node affinity"
	whyNone      = "node(s) didn't find available persistent volumes to bind"
	whyGone      = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	whyAlone     = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
)

// volumes are a pod's claims and what it needs for them, at the time of reading; nil for a pod without claims.
type volumes struct {
	bound []*corev1.PersistentVolume // nil if it is gone
	open  []openClaim                // claims that are bound on the pod's node
	alone []string                   // ReadWriteOncePod claims
	all   []*corev1.PersistentVolume // of the cluster, for open
}

// openClaim is a claim without a volume, and its class.
type openClaim struct {
	*corev1.PersistentVolumeClaim
	class *storagev1.StorageClass
}

// volumesOf reads a pod's claims; why returns what excludes every node.
func (r *run) volumesOf(ctx context.Context, pod *corev1.Pod) (all *volumes, why string, err error) {
	var vs volumes
	for i := range pod.Spec.Volumes {
		name := claim.Of(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		if why, err := r.claimOf(ctx, pod, &pod.Spec.Volumes[i], name, &vs); why != "" || err != nil {
			return nil, why, err
		}
		all = &vs
	}
	if len(vs.open) > 0 {
		vs.all, err = client.List[*corev1.PersistentVolume](ctx, r.deps.Client, client.Selector{})
	}
	return all, "", err
}

// claimOf reads one claim into vs.
func (r *run) claimOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, name string, vs *volumes) (why string, err error) {
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, r.deps.Client, pod.Namespace, name)
	switch {
	case apierrors.IsNotFound(err) && v.Ephemeral != nil:
		return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name), nil
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("persistentvolumeclaim %q not found", name), nil
	case err != nil:
		return "", err
	case c.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, c.Spec.VolumeName), nil
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("persistentvolumeclaim %q is being deleted", name), nil
	}
	if v.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(pod, c); err != nil {
			return err.Error(), nil
		}
	}
	if slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod) {
		vs.alone = append(vs.alone, name)
	}
	return r.add(ctx, c, vs)
}

// add classifies a claim. The pod waits for one that is bound immediately.
func (r *run) add(ctx context.Context, c *corev1.PersistentVolumeClaim, vs *volumes) (why string, err error) {
	if claim.Bound(c) {
		v, err := client.Get[*corev1.PersistentVolume](ctx, r.deps.Client, "", c.Spec.VolumeName)
		if apierrors.IsNotFound(err) {
			v, err = nil, nil
		}
		vs.bound = append(vs.bound, v)
		return "", err
	}
	class, err := client.Get[*storagev1.StorageClass](ctx, r.deps.Client, "", claim.Class(c))
	if err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	if err != nil || !claim.Waits(class) || c.Spec.VolumeName != "" {
		return whyImmediate, nil
	}
	vs.open = append(vs.open, openClaim{c, class})
	return "", nil
}

// filter returns a filter for the pod with these volumes.
func (vs *volumes) filter(pod *corev1.Pod, on *nodeState) []string {
	switch {
	case vs.inUse(pod, on.cluster):
		return []string{whyAlone}
	case slices.Contains(vs.bound, nil):
		return []string{whyGone}
	case slices.ContainsFunc(vs.bound, func(v *corev1.PersistentVolume) bool { return !claim.Reaches(v, on.node) }):
		return []string{whyElsewhere}
	}
	if _, ok := vs.assign(on); !ok {
		return []string{whyNone}
	}
	return nil
}

// inUse reports whether another pod uses a ReadWriteOncePod claim of the pod.
func (vs *volumes) inUse(pod *corev1.Pod, c *cache) bool {
	if len(vs.alone) == 0 {
		return false
	}
	for _, p := range c.pods {
		if p.pod.Namespace == pod.Namespace && p.pod.UID != pod.UID &&
			slices.ContainsFunc(claim.AllOf(p.pod), func(name string) bool { return slices.Contains(vs.alone, name) }) {
			return true
		}
	}
	return false
}

// assign maps each open claim to an existing volume, or to none if one can be provisioned on the node, by the
// claim's name; false if neither works for all.
func (vs *volumes) assign(on *nodeState) (map[string]*corev1.PersistentVolume, bool) {
	assigned, taken := map[string]*corev1.PersistentVolume{}, map[string]bool{}
	for _, c := range vs.open {
		if selected := c.Annotations[claim.SelectedNode]; selected != "" && on.cluster.knows(selected) {
			if selected != on.node.Name {
				return nil, false
			}
			continue // it is being provisioned
		}
		v := claim.Best(c.PersistentVolumeClaim, vs.all, on.node, taken, false)
		if v != nil {
			assigned[c.Name], taken[v.Name] = v, true
		} else if !canBeMade(c.class, on.node) {
			return nil, false
		}
	}
	return assigned, true
}

// knows reports whether a node of the name exists.
func (c *cache) knows(node string) bool { return c.nodes[node] != nil && c.nodes[node].node != nil }

// canBeMade reports whether the class has a provisioner, and does not exclude the node.
func canBeMade(class *storagev1.StorageClass, node *corev1.Node) bool {
	if class.Provisioner == "" || class.Provisioner == claim.NoProvisioner {
		return false
	}
	return len(class.AllowedTopologies) == 0 || slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchLabelExpressions, func(r corev1.TopologySelectorLabelRequirement) bool {
			return !slices.Contains(r.Values, node.Labels[r.Key])
		})
	})
}

// errTaken means that another claim took the volume.
var errTaken = errors.New("the volume was bound to another claim meanwhile")

// settle requests the binding of the open claims on the node, to existing volumes or new ones. The bound claims
// wake the pod.
func (r *run) settle(ctx context.Context, vs *volumes, node string) error {
	r.mu.Lock()
	on := r.cache.state(node)
	var assigned map[string]*corev1.PersistentVolume
	ok := on.node != nil
	if ok {
		assigned, ok = vs.assign(on)
	}
	r.cache.tidy(node)
	r.mu.Unlock()
	if !ok {
		return errTaken
	}
	for _, c := range vs.open {
		if err := r.settleOne(ctx, c, assigned[c.Name], node); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) settleOne(ctx context.Context, c openClaim, v *corev1.PersistentVolume, node string) error {
	if v == nil {
		_, err := client.Update(ctx, r.deps.Client, c.PersistentVolumeClaim, "", func(cur *corev1.PersistentVolumeClaim) error {
			if cur.UID != c.UID {
				return errTaken
			}
			metav1.SetMetaDataAnnotation(&cur.ObjectMeta, claim.SelectedNode, node)
			return nil
		})
		return err
	}
	_, err := client.Update(ctx, r.deps.Client, v, "", func(cur *corev1.PersistentVolume) error {
		if cur.Spec.ClaimRef != nil && !claim.IsFor(cur, c.PersistentVolumeClaim) {
			return errTaken
		}
		if cur.Spec.ClaimRef == nil {
			metav1.SetMetaDataAnnotation(&cur.ObjectMeta, claim.BoundByController, "yes")
		}
		if cur.Spec.ClaimRef == nil || cur.Spec.ClaimRef.UID == "" {
			cur.Spec.ClaimRef = claim.Reference(c.PersistentVolumeClaim)
		}
		return nil
	})
	return err
}
