package customresource_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/custom"
	"monopod/controllers/customresource"
	"monopod/controllers/internal/apitest"
	"monopod/store"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func definition(plural, kind string, shortNames ...string) *custom.Definition {
	return crd.Of(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ShortNames: shortNames},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
		},
	})
}

// run starts the controller, and the task of the registry that serves custom kinds.
func run(t *testing.T) *apitest.API {
	a := apitest.New(t)
	start(a)
	return a
}

func start(a *apitest.API) {
	deps := a.Deps()
	a.Run(follow.Task("definitions", registry.NewDefinitions(a.Client.(*registry.Registry)).Run))
	a.Run(customresource.New(deps))
}

func condition(a *apitest.API, name string, typ apiextensionsv1.CustomResourceDefinitionConditionType) string {
	def, ok := apitest.Get[*custom.Definition](a, "", name)
	if !ok {
		return "gone"
	}
	if cond := apihelpers.FindCRDCondition(&def.CustomResourceDefinition, typ); cond != nil {
		return fmt.Sprintf("%s %s %s", cond.Status, cond.Reason, cond.Message)
	}
	return "none"
}

// object returns a new object of the kind.
func object(t *testing.T, name string, finalizers ...string) client.Object {
	obj := custom.New()
	err := obj.(*custom.Object).UnmarshalJSON(
		fmt.Appendf(nil, `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":%q,"namespace":"default"}}`,
			name))
	if err != nil {
		t.Fatal(err)
	}
	obj.SetFinalizers(finalizers)
	return obj
}

func TestNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t)
		a.Create(definition("widgets", "Widget", "wd"), definition("gadgets", "Gadget", "wd", "gd"),
			definition("things", "Widget"))
		apitest.Settle(time.Second)
		const name = "example.com"
		for _, c := range []struct {
			name string
			typ  apiextensionsv1.CustomResourceDefinitionConditionType
			want string
		}{
			{"widgets." + name, apiextensionsv1.NamesAccepted, "True NoConflicts no conflicts found"},
			{"widgets." + name, apiextensionsv1.Established, "True InitialNamesAccepted the initial names have been accepted"},
			{"gadgets." + name, apiextensionsv1.NamesAccepted, `False ShortNamesConflict "wd" is already in use`},
			{"gadgets." + name, apiextensionsv1.Established, "False NotAccepted not all names are accepted"},
			{"things." + name, apiextensionsv1.NamesAccepted, `False ListKindConflict "WidgetList" is already in use`},
		} {
			if got := condition(a, c.name, c.typ); got != c.want {
				t.Errorf("%s %s: %s, want %s", c.name, c.typ, got, c.want)
			}
		}
		a.Delete(definition("widgets", "Widget"), "")
		apitest.Settle(time.Second)
		for _, name := range []string{"gadgets.example.com", "things.example.com"} {
			if got := condition(a, name,
				apiextensionsv1.Established); got != "True InitialNamesAccepted the initial names have been accepted" {
				t.Errorf("%s after the names are free: %s", name, got)
			}
		}
	})
}

// A name of a definition conflicts with any name of another one.
func TestNamesInUse(t *testing.T) {
	t.Parallel()
	for want, def := range map[string]*custom.Definition{
		`False PluralConflict "wd" is already in use`:         definition("wd", "Other"),
		`False SingularConflict "wd" is already in use`:       definition("others", "Wd"),
		`False ShortNamesConflict "widget" is already in use`: definition("others", "Other", "widget"),
		`False KindConflict "WidgetList" is already in use`:   definition("others", "WidgetList"),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := run(t)
				a.Create(definition("widgets", "Widget", "wd"))
				apitest.Settle(time.Second)
				a.Create(def)
				apitest.Settle(time.Second)
				if got := condition(a, def.Name, apiextensionsv1.NamesAccepted); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		})
	}
}

// With a limit, a definition's creation returns when its kind is served, or after the limit if its names are in use.
func TestCreationWaitsForTheKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		resources := registry.Resources()
		s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
		t.Cleanup(func() { s.Close() })
		r := registry.New(s, resources, registry.Config{Establish: limit})
		a := &apitest.API{Client: r, Store: s, Registry: prometheus.NewRegistry(), T: t}
		create := func(def *custom.Definition) time.Duration {
			began := time.Now()
			a.Create(def)
			return time.Since(began)
		}
		if took := create(definition("early", "Early")); took != limit {
			t.Errorf("without the controller the creation took %v", took)
		}
		start(a)
		if took := create(definition("widgets", "Widget")); took >= limit || r.Find(widgets) == nil {
			t.Errorf("the creation took %v, kind served: %v", took, r.Find(widgets) != nil)
		}
		if took := create(definition("things", "Widget")); took != limit {
			t.Errorf("with a name in use the creation took %v", took)
		}
	})
}

// The deletion of a definition first deletes its objects, waits for their finalizers, and forbids new objects.
func TestDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t)
		a.Create(definition("widgets", "Widget"))
		apitest.Settle(time.Second)
		for i := range 100 {
			a.Create(object(t, fmt.Sprintf("w%d", i)))
		}
		a.Create(object(t, "held", "example.com/hold"))
		a.Delete(definition("widgets", "Widget"), "")
		apitest.Settle(time.Minute)
		if got := condition(a, "widgets.example.com",
			apiextensionsv1.Terminating); got != "True InstanceDeletionInProgress CustomResource deletion is in progress" {
			t.Error(got)
		}
		objs, _, err := a.Client.List(t.Context(), client.Selector{Resource: widgets})
		if err != nil || len(objs) != 1 || objs[0].GetDeletionTimestamp() == nil {
			t.Fatal(len(objs), err)
		}
		if _, err := a.Client.Create(t.Context(), object(t, "late")); !apierrors.IsForbidden(err) ||
			err.Error() != `widgets.example.com "late" is forbidden: create not allowed while custom resource definition is `+
				`terminating` {
			t.Error(err)
		}
		_, err = a.Client.Update(t.Context(), client.Ref{Resource: widgets, Namespace: "default", Name: "held"},
			func(cur client.Object) (client.Object, error) {
				next := cur.DeepCopyObject().(client.Object)
				next.SetFinalizers(nil)
				return next, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		apitest.Settle(10 * time.Second)
		if got := condition(a, "widgets.example.com", apiextensionsv1.Terminating); got != "gone" {
			t.Error(got)
		}
		if n := a.Store.Count()["widgets.example.com"]; n != 0 {
			t.Errorf("%d objects are left in the store", n)
		}
		if _, _, err := a.Client.List(t.Context(), client.Selector{Resource: widgets}); !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// put writes an object to the store, bypassing the API.
func put(t *testing.T, a *apitest.API, key store.Key, obj client.Object) {
	t.Helper()
	if _, err := a.Store.Update(t.Context(), key,
		func(store.Object) (store.Object, error) { return obj, nil }); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, a *apitest.API, key store.Key) {
	t.Helper()
	if _, err := a.Store.Update(t.Context(), key,
		func(store.Object) (store.Object, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
}

// A definition with 10,000 objects is deleted with all of them.
func TestDeletionOfManyObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t)
		a.Create(definition("widgets", "Widget"))
		apitest.Settle(time.Second)
		for i := range 10_000 {
			name := fmt.Sprintf("w%d", i)
			put(t, a, store.Key{Resource: "widgets.example.com", Namespace: "default", Name: name}, object(t, name))
		}
		a.Delete(definition("widgets", "Widget"), "")
		apitest.Settle(10 * time.Second)
		if got, n := condition(a, "widgets.example.com", apiextensionsv1.Terminating),
			a.Store.Count()["widgets.example.com"]; got != "gone" || n != 0 {
			t.Errorf("%s, %d objects are left", got, n)
		}
	})
}

// A new definition does not have the objects of an earlier one whose deletion a killed process left unfinished. Objects
// that are newer than the definition are kept.
func TestANewDefinitionBeginsEmpty(t *testing.T) {
	t.Parallel()
	left := store.Key{Resource: "widgets.example.com", Namespace: "default", Name: "left"}
	for _, first := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := apitest.New(t)
			put(t, a, left, object(t, "left"))
			if first { // the definition exists when the controller starts
				a.Create(definition("widgets", "Widget"))
				put(t, a, store.Key{Resource: left.Resource, Namespace: "default", Name: "newer"}, object(t, "newer"))
			}
			start(a)
			if !first {
				apitest.Settle(time.Second)
				a.Create(definition("widgets", "Widget"))
			}
			apitest.Settle(time.Second)
			a.Create(object(t, "next"))
			if _, err := a.Store.Get(t.Context(), left); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the object of the earlier definition was not deleted: %v", err)
			}
			want := int64(1)
			if first {
				want = 2
			}
			if n := a.Store.Count()[left.Resource]; n != want {
				t.Errorf("%d objects, want %d", n, want)
			}
		})
	}
}

// An established definition keeps its objects over a restart, also those older than its last change.
func TestARestartKeepsObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t)
		def := definition("widgets", "Widget")
		a.Create(def)
		apitest.Settle(time.Second)
		a.Create(object(t, "a"))
		if _, err := client.Update(t.Context(), a.Client, def, "", func(d *custom.Definition) error {
			d.Spec.Names.ShortNames = []string{"wd"}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		apitest.Settle(time.Second)
		if _, err := registry.NewDefinitions(a.Client.(*registry.Registry)).Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := a.Store.Count()["widgets.example.com"]; n != 1 {
			t.Errorf("%d objects", n)
		}
	})
}

// A creation of an object while its definition is being deleted fails and leaves nothing, although the kind is still
// served.
func TestAnObjectDoesNotOutliveItsDefinition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := apitest.New(t)
		def := definition("widgets", "Widget")
		def.Finalizers = []string{apiextensionsv1.CustomResourceCleanupFinalizer}
		def.Status.AcceptedNames = def.Spec.Names
		apihelpers.SetCRDCondition(&def.CustomResourceDefinition,
			apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NamesAccepted,
				Status: apiextensionsv1.ConditionTrue})
		at := store.Key{Resource: custom.DefinitionsName, Name: def.Name}
		put(t, a, at, def)
		// Load reads the definitions once, so the registry does not see the changes below.
		if _, err := registry.NewDefinitions(a.Client.(*registry.Registry)).Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.Create(object(t, "early"))
		ending := def.DeepCopy()
		ending.DeletionTimestamp = new(metav1.Now())
		put(t, a, at, ending)
		if _, err := a.Client.Create(t.Context(), object(t, "late")); !apierrors.IsForbidden(err) ||
			err.Error() != `widgets.example.com "late" is forbidden: create not allowed while custom resource definition is `+
				`terminating` {
			t.Errorf("creation while the definition is terminating: %v", err)
		}
		remove(t, a, at)
		if _, err := a.Client.Create(t.Context(), object(t, "late")); !apierrors.IsNotFound(err) {
			t.Errorf("creation after the deletion of the definition: %v", err)
		}
		if n := a.Store.Count()["widgets.example.com"]; n != 1 {
			t.Errorf("%d objects, want 1", n)
		}
	})
}
