package garbagecollector

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

// member returns the n-th member of a ring; every third is a Secret.
func member(n int) client.Object {
	meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("m", n)}
	if n%3 == 2 {
		return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta}
	}
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta}
}

// own adds an owner reference with blockOwnerDeletion to obj.
func own(api *apitest.API, owner, obj client.Object) {
	stored, err := api.Get(api.T.Context(), client.RefOf(owner))
	if err != nil {
		api.T.Fatal(err)
	}
	_, err = api.Update(api.T.Context(), client.RefOf(obj), func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(client.Object)
		gvk := owner.GetObjectKind().GroupVersionKind()
		next.SetOwnerReferences(append(next.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: owner.GetName(), UID: stored.GetUID(),
			BlockOwnerDeletion: new(true),
		}))
		return next, nil
	})
	if err != nil {
		api.T.Fatal(err)
	}
}

// ring creates a cycle of size objects: each owns the next one, the last owns the first.
func ring(api *apitest.API, size int) {
	for n := range size {
		api.Create(member(n))
	}
	for n := range size {
		own(api, member(n), member((n+1)%size))
	}
	synctest.Wait()
}

// left returns the names of the remaining members.
func left(api *apitest.API) string {
	out := there(api)
	for _, s := range apitest.List[*corev1.Secret](api, "default") {
		out += s.Name + " "
	}
	return out
}

func TestOwnerCycles(t *testing.T) {
	for _, size := range []int{1, 2, 3, 12} {
		for name, deleted := range map[string]int{"one deleted": 1, "all deleted": size} {
			t.Run(fmt.Sprintf("%d, %s", size, name), func(t *testing.T) {
				within(t, func(t *testing.T, api *apitest.API) {
					ring(api, size)
					before := adds(api)
					for n := range deleted {
						api.Delete(member(n), metav1.DeletePropagationForeground)
					}
					apitest.Settle(time.Second)
					if got := left(api); got != "" {
						t.Errorf("left %q", got)
					}
					if n := adds(api) - before; n > 10*float64(size) {
						t.Errorf("%v keys added for a ring of %d", n, size)
					}
				})
			})
		}
	}
}

// TestOwnerCycleWaitsForOthers tests that the foreground deletion of a ring waits for a dependent with a finalizer, and
// that the deletion of the ring's owner waits for the ring.
func TestOwnerCycleWaitsForOthers(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		ring(api, 4)
		add(api, "above")
		own(api, configMap(api, "above"), member(0))
		held := configMap(api, "held", "m1")
		held.Finalizers = []string{"example.com/hold"}
		api.Create(held)
		synctest.Wait()
		// m0 before above: otherwise m0 would lose its reference to above, because its other owner m3 is not being deleted
		api.Delete(member(0), metav1.DeletePropagationForeground)
		api.Delete(configMap(api, "above"), metav1.DeletePropagationForeground)
		apitest.Settle(time.Minute)
		if got := left(api); got != "above held m0 m1 m3 m2 " {
			t.Errorf("left %q while held has a finalizer", got)
		}
		apitest.Change(api, configMap(api, "held"), "", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
		apitest.Settle(time.Second)
		if got := left(api); got != "" {
			t.Errorf("left %q", got)
		}
	})
}

// TestOwnerCycleWithoutDeletionStays tests that the controller keeps a ring that is not being deleted.
func TestOwnerCycleWithoutDeletionStays(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		ring(api, 3)
		before := adds(api)
		apitest.Settle(time.Hour)
		if left(api) != "m0 m1 m2 " || adds(api) != before {
			t.Errorf("left %q, %v keys added", left(api), adds(api)-before)
		}
	})
}

// TestOwnerInAnotherNamespace tests that a reference to an owner in another namespace counts as absent, and causes an
// Event.
func TestOwnerInAnotherNamespace(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Events.Watch()
		add(api, "a")
		for _, late := range []bool{false, true} {
			foreign := configMap(api, fmt.Sprint("foreign-", late), "a")
			foreign.Namespace = "kube-public"
			if late { // the object gets its reference after its creation
				foreign.OwnerReferences = nil
			}
			api.Create(foreign)
			if late {
				own(api, configMap(api, "a"), foreign)
			}
			synctest.Wait()
		}
		api.Create(&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "wide"}})
		own(api, configMap(api, "a"), &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "wide"}})
		synctest.Wait()
		if n := len(apitest.List[*corev1.ConfigMap](api, "kube-public")); n != 0 {
			t.Errorf("%d objects with an owner in another namespace are left", n)
		}
		if _, ok := apitest.Get[*corev1.Namespace](api, "", "wide"); !ok || there(api) != "a " {
			t.Error("the cluster-scoped dependent or its namespaced owner was deleted")
		}
		if n := api.Events.Count()["OwnerRefInvalidNamespace"]; n < 3 {
			t.Errorf("%d OwnerRefInvalidNamespace Events, want at least 3", n)
		}
	})
}

// TestManyDependents tests that the work is proportional to the number of dependents.
func TestManyDependents(t *testing.T) {
	const many = 1000
	within(t, func(t *testing.T, api *apitest.API) {
		add(api, "a")
		for n := range many {
			api.Create(configMap(api, fmt.Sprint("d", n), "a"))
		}
		synctest.Wait()
		before := adds(api)
		api.Delete(configMap(api, "a"), metav1.DeletePropagationForeground)
		apitest.Settle(time.Minute)
		if got := there(api); got != "" {
			t.Errorf("left %.100q", got)
		}
		if n := adds(api) - before; n > 4*many {
			t.Errorf("%v keys added for %d dependents", n, many)
		}
	})
}
