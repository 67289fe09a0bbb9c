package claims

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	c := New(Deps{})
	a, b := types.NamespacedName{Namespace: "n", Name: "a"}, types.NamespacedName{Namespace: "n", Name: "b"}
	if len(c.Drop("1")) != 0 || !c.take(a, "1") || !c.take(a, "1") || !c.take(b, "2") {
		t.Error("take must succeed for a free claim and for a claim of the same pod")
	}
	if c.take(a, "2") || c.take(b, "1") {
		t.Error("two pods have the same claim")
	}
	if free := c.Drop("1"); len(free) != 1 || free[0] != a {
		t.Errorf("Drop returned %v, want a", free)
	}
	if !c.take(a, "2") || c.take(b, "3") || len(c.Drop("1")) != 0 {
		t.Error("Drop must release only the claims of its pod")
	}
}
