package claim

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Best returns the volume for a claim: a volume that is reserved for it or else, unless onlyReserved, the best
// available volume that matches: the one with the fewest additional access modes, then the smallest, then the first by
// name. If node is not nil, the volume must be usable on it; a reserved volume that is not usable there leaves the
// claim without a volume. Best skips volumes in taken.
func Best(c *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, node *corev1.Node, taken map[string]bool,
	onlyReserved bool) *corev1.PersistentVolume {
	var best *corev1.PersistentVolume
	for _, v := range volumes {
		if taken[v.Name] || v.DeletionTimestamp != nil || Mismatch(c, v) != "" {
			continue
		}
		if IsFor(v, c) {
			if node != nil && !UsableOn(v, node) {
				return nil
			}
			return v
		}
		if !onlyReserved && v.Spec.ClaimRef == nil && suits(c, v, node) && (best == nil || compare(v, best) < 0) {
			best = v
		}
	}
	return best
}

// Mismatch returns why the claim cannot use the volume even if it names it, or an empty string if it can.
func Mismatch(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) string {
	has, wants := v.Spec.Capacity[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case has.Cmp(wants) < 0:
		return "requested PV is too small"
	case Class(c) != VolumeClass(v) && !IsFor(v, c):
		return "storageClassName does not match"
	case Mode(c.Spec.VolumeMode) != Mode(v.Spec.VolumeMode):
		return "incompatible volumeMode"
	case text(c.Spec.VolumeAttributesClassName) != text(v.Spec.VolumeAttributesClassName):
		return "volumeAttributesClassName does not match"
	case !offers(v, c.Spec.AccessModes):
		return "incompatible accessMode"
	}
	return ""
}

// suits reports whether the claim can use an available volume.
func suits(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, node *corev1.Node) bool {
	return v.Status.Phase == corev1.VolumeAvailable && selects(c.Spec.Selector, v.Labels) &&
		(node == nil || UsableOn(v, node))
}

func compare(a, b *corev1.PersistentVolume) int {
	sizeA, sizeB := a.Spec.Capacity[corev1.ResourceStorage], b.Spec.Capacity[corev1.ResourceStorage]
	return cmp.Or(cmp.Compare(len(a.Spec.AccessModes), len(b.Spec.AccessModes)), sizeA.Cmp(sizeB),
		cmp.Compare(a.Name, b.Name))
}

func offers(v *corev1.PersistentVolume, modes []corev1.PersistentVolumeAccessMode) bool {
	for _, m := range modes {
		if !slices.Contains(v.Spec.AccessModes, m) {
			return false
		}
	}
	return true
}

func selects(selector *metav1.LabelSelector, of map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of))
}

// UsableOn reports whether the volume is usable on the node.
func UsableOn(v *corev1.PersistentVolume, node *corev1.Node) bool {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return true
	}
	ok, err := nodeaffinity.NewLazyErrorNodeSelector(v.Spec.NodeAffinity.Required).Match(node)
	return ok && err == nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
