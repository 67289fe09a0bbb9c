package spec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/amount"
)

// Containers returns the init containers and the containers. They are not copies.
func Containers(s *corev1.PodSpec) []*corev1.Container {
	var out []*corev1.Container
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	return out
}

// RequestChanged reports whether a container requests another amount of a resource in next than in old.
func RequestChanged(next, old *corev1.PodSpec, name corev1.ResourceName) bool {
	return AnyDiffers(next, old,
		func(a, b *corev1.ResourceRequirements) bool { return !amount.Same(a.Requests, b.Requests, name) })
}

// AnyDiffers reports whether differ returns true for a container that is in both next and old.
func AnyDiffers(next, old *corev1.PodSpec, differ func(a, b *corev1.ResourceRequirements) bool) bool {
	had := Containers(old)
	return slices.ContainsFunc(Containers(next), func(c *corev1.Container) bool {
		i := slices.IndexFunc(had, func(o *corev1.Container) bool { return o.Name == c.Name })
		return i >= 0 && differ(&c.Resources, &had[i].Resources)
	})
}
