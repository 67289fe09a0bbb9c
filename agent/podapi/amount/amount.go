// Package amount adds and compares resource lists.
package amount

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// Add adds more to sum.
func Add(sum, more corev1.ResourceList) {
	for name, q := range more {
		have := sum[name]
		have.Add(q)
		sum[name] = have
	}
}

// Joined returns a new list of both; amounts of b take precedence.
func Joined(a, b corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// Same reports whether two lists have the same amount of a resource. A missing amount differs from 0.
func Same(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	x, hasX := a[name]
	y, hasY := b[name]
	return hasX == hasY && x.Cmp(y) == 0
}

// Larger returns the larger amounts of the resources that are in both lists. A missing resource is unlimited.
func Larger(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, x := range a {
		if y, ok := b[name]; ok {
			out[name] = x
			if y.Cmp(x) > 0 {
				out[name] = y
			}
		}
	}
	return out
}
