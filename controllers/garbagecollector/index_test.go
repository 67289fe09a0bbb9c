package garbagecollector

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestIndexIsReleased: after a burst of objects, the index has the memory of those that are left, and still knows them.
func TestIndexIsReleased(t *testing.T) {
	t.Parallel()
	const burst, left = 2000, 10
	x := newIndex()
	refs := func(n int) []metav1.OwnerReference { // a large owner, and one of its own
		return []metav1.OwnerReference{{UID: "large", BlockOwnerDeletion: new(true)}, {UID: types.UID(fmt.Sprint("owner", n))}}
	}
	object := func(n int) item {
		return item{namespace: "default", name: fmt.Sprint(n), uid: types.UID(fmt.Sprint("uid", n))}
	}
	for n := range burst {
		x.exists(object(n), true)
		x.change(object(n), nil, refs(n))
	}
	for n := left; n < burst; n++ {
		x.change(object(n), refs(n), nil)
		x.gone(object(n))
	}
	for name, most := range map[string]int{"owners": int(x.most.of), "waiting": int(x.most.waiting), "namespaces": int(x.most.at), "dependents": int(x.of["large"].most)} {
		if most > burst/10 {
			t.Errorf("the index has memory for %d %s, and needs it for %d", most, name, left)
		}
	}
	if got := len(x.dependents("large")); got != left || !x.blocked("large") {
		t.Errorf("the large owner has %d dependents, blocked: %t", got, x.blocked("large"))
	}
	for n := range left {
		if ns, ok := x.namespace(object(n).uid); !ok || ns != "default" || !x.has(refs(n)[1].UID) || len(x.waitingFor([]metav1.OwnerReference{{UID: object(n).uid}})) != 1 {
			t.Errorf("%s is lost", object(n).name)
		}
	}
}
