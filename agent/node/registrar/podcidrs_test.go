package registrar

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/podcidr"
)

// The first version of a Node already says who sets its ranges: the node IPAM controller sees no other.
func TestNewNodeSaysThatItSetsItsRanges(t *testing.T) {
	t.Parallel()
	for _, own := range []func() bool{nil, func() bool { return false }, func() bool { return true }} {
		r := &Registrar{cfg: Config{NodeName: "n", OwnPodCIDRs: own},
			Deps: Deps{Resources: func() (_, _ corev1.ResourceList) { return nil, nil }}}
		got := r.newNode().Annotations[podcidr.Annotation]
		if want := own != nil && own(); (got == podcidr.Self) != want {
			t.Errorf("the annotation is %q, want self: %v", got, want)
		}
	}
}
