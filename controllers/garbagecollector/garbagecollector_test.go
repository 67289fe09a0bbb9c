package garbagecollector

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func within(t *testing.T, test func(t *testing.T, api *apitest.API)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), &api.Events, Config{Kinds: apitest.Kinds()}))
		test(t, api)
	})
}

// configMap returns a ConfigMap that the named ConfigMaps own.
func configMap(api *apitest.API, name string, owners ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
	}
	for _, o := range owners {
		owner, _ := apitest.Get[*corev1.ConfigMap](api, "default", o)
		cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: o, UID: owner.UID, BlockOwnerDeletion: new(true),
		})
	}
	return cm
}

func add(api *apitest.API, name string, owners ...string) {
	api.Create(configMap(api, name, owners...))
	synctest.Wait()
}

func there(api *apitest.API) string {
	synctest.Wait()
	out := ""
	for _, cm := range apitest.List[*corev1.ConfigMap](api, "default") {
		out += cm.Name + " "
	}
	return out
}

func TestBackground(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		add(api, "a")
		add(api, "b", "a")
		add(api, "c", "b")
		add(api, "d")
		add(api, "e", "a", "d")
		api.Delete(configMap(api, "a"), metav1.DeletePropagationBackground)
		if got := there(api); got != "d e " {
			t.Errorf("left %q, want d and its dependent e", got)
		}
		if e, _ := apitest.Get[*corev1.ConfigMap](api, "default", "e"); len(e.OwnerReferences) != 1 {
			t.Errorf("e has the owner references %v, want one to d", e.OwnerReferences)
		}
	})
}

func TestForegroundWaitsForDependents(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		add(api, "a")
		held := configMap(api, "b", "a")
		held.Finalizers = []string{"example.com/hold"}
		api.Create(held)
		synctest.Wait()
		api.Delete(configMap(api, "a"), metav1.DeletePropagationForeground)
		if got := there(api); got != "a b " {
			t.Fatalf("left %q, want a to wait for b", got)
		}
		apitest.Change(api, configMap(api, "b"), "", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
		if got := there(api); got != "" {
			t.Errorf("left %q", got)
		}
	})
}

// The controller does not delete ConfigMaps, which it cannot watch here, but reads them as owners.
func TestUnwatchedKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), &api.Events, Config{Kinds: apitest.Unwatched(client.ConfigMaps)}))
		add(api, "owner")
		add(api, "dependent", "owner")
		owner := func(name string) []metav1.OwnerReference {
			cm, _ := apitest.Get[*corev1.ConfigMap](api, "default", "owner")
			return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: cm.UID}}
		}
		meta := func(name, of string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: owner(of)}
		}
		api.Create(&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: meta("kept", "owner")},
			&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta("garbage", "absent")})
		synctest.Wait()
		if secrets := apitest.List[*corev1.Secret](api, "default"); len(secrets) != 1 || secrets[0].Name != "kept" {
			t.Errorf("secrets %v", secrets)
		}
		api.Delete(configMap(api, "owner"), metav1.DeletePropagationBackground)
		if got := there(api); got != "dependent " {
			t.Errorf("left %q", got)
		}
	})
}

// A foreground deletion waits only for dependents with blockOwnerDeletion. A dependent with another owner loses the
// reference and is kept.
func TestForegroundAndOthers(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		add(api, "a")
		add(api, "other")
		loose := configMap(api, "loose", "a")
		loose.Finalizers, loose.OwnerReferences[0].BlockOwnerDeletion = []string{"example.com/hold"}, nil
		api.Create(loose)
		add(api, "shared", "a", "other")
		api.Delete(configMap(api, "a"), metav1.DeletePropagationForeground)
		if got := there(api); got != "loose other shared " {
			t.Fatalf("left %q", got)
		}
		if cm, _ := apitest.Get[*corev1.ConfigMap](api, "default", "loose"); cm.DeletionTimestamp == nil {
			t.Error("the dependent without blockOwnerDeletion is not being deleted")
		}
		if cm, _ := apitest.Get[*corev1.ConfigMap](api, "default", "shared"); len(cm.OwnerReferences) != 1 ||
			cm.OwnerReferences[0].Name != "other" {
			t.Errorf("owners %v", cm.OwnerReferences)
		}
	})
}

// A foreground deletion waits also for a dependent whose watch event arrives after the owner's deletion.
func TestForegroundWaitsForDependentsOfLateWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lag = 300 * time.Millisecond
		api := apitest.New(t)
		deps := api.Deps()
		deps.Client = apitest.Lagging{Client: api.Client, Resource: client.Secrets, By: lag}
		api.Run(New(deps, &api.Events, Config{Kinds: apitest.Kinds()}))
		add(api, "a")
		held := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: configMap(api, "held", "a").ObjectMeta}
		held.Finalizers = []string{"example.com/hold"}
		api.Create(held)
		api.Delete(configMap(api, "a"), metav1.DeletePropagationForeground)
		for range 10 {
			if got := there(api); got != "a " {
				t.Fatalf("left %q, want a to wait for the secret", got)
			}
			apitest.Settle(lag)
		}
		apitest.Change(api, held, "", func(s *corev1.Secret) { s.Finalizers = nil })
		apitest.Settle(10 * lag)
		if _, ok := apitest.Get[*corev1.Secret](api, "default", "held"); ok || there(api) != "" {
			t.Errorf("left %q, Secret exists: %v", there(api), ok)
		}
	})
}

func TestOrphan(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		add(api, "a")
		add(api, "b", "a")
		api.Delete(configMap(api, "a"), metav1.DeletePropagationOrphan)
		if got := there(api); got != "b " {
			t.Fatalf("left %q, want the orphan", got)
		}
		if b, _ := apitest.Get[*corev1.ConfigMap](api, "default", "b"); len(b.OwnerReferences) != 0 {
			t.Errorf("b has the owner references %v, want none", b.OwnerReferences)
		}
	})
}

func TestOwnerOfSameNameIsNotTheOwner(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		add(api, "a")
		imposter := configMap(api, "b", "a")
		imposter.OwnerReferences[0].UID = "another"
		api.Create(imposter)
		foreign := configMap(api, "c", "a")
		foreign.OwnerReferences[0].APIVersion, foreign.OwnerReferences[0].Kind = "example.com/v1", "Widget"
		api.Create(foreign)
		if got := there(api); got != "a c " {
			t.Errorf("left %q, want a and c: the owner of b does not exist, the kind of c's owner is unknown", got)
		}
		before := api.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if api.Store.Revision() != before {
			t.Error("the idle controller wrote")
		}
	})
}

// adds returns the metric workqueue_adds_total.
func adds(api *apitest.API) float64 {
	families, err := api.Registry.Gather()
	if err != nil {
		api.T.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "workqueue_adds_total" {
			return f.Metric[0].Counter.GetValue()
		}
	}
	return 0
}
