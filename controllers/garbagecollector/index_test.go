package garbagecollector

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestIndex tests that after the deletion of many objects the index contains exactly the remaining ones.
func TestIndex(t *testing.T) {
	t.Parallel()
	const burst, left = 2000, 10
	x := newIndex()
	refs := func(n int) []metav1.OwnerReference { // an owner of all objects, and an owner of this object only
		return []metav1.OwnerReference{{UID: "large", BlockOwnerDeletion: new(true)},
			{UID: types.UID(fmt.Sprint("owner", n))}}
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
	if len(x.of) != left+1 || len(x.waiting) != left || len(x.at) != left {
		t.Errorf("the index has %d owners, %d waiting and %d namespaces for %d objects", len(x.of), len(x.waiting),
			len(x.at), left)
	}
	if got := len(x.dependents("large")); got != left || !x.blocked("large") {
		t.Errorf("the large owner has %d dependents, blocked: %t", got, x.blocked("large"))
	}
	for n := range left {
		if ns, ok := x.namespace(object(n).uid); !ok || ns != "default" || !x.has(refs(n)[1].UID) ||
			len(x.waitingFor([]metav1.OwnerReference{{UID: object(n).uid}})) != 1 {
			t.Errorf("object %s is missing in the index", object(n).name)
		}
	}
}
