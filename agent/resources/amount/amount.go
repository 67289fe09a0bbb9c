// Package amount reckons with lists of resources.
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

// Joined is a new list of both; what is in both is as b says.
func Joined(a, b corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// Same reports whether two lists have the same of a resource, none being an amount of
// its own.
func Same(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	x, hasX := a[name]
	y, hasY := b[name]
	return hasX == hasY && x.Cmp(y) == 0
}

// Larger are the larger amounts of what is in both: none is no limit.
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
