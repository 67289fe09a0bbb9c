package namespace

import (
	"slices"
	"strings"
	"sync/atomic"
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

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

func secret(ns, name string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
	}
}

func TestNamespaceIsEmptiedThenDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), Config{Kinds: apitest.Kinds()}))
		pod := apitest.Pod("x", "p", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "default"}}
		api.Create(namespace("x"), namespace("y"), secret("x", "s"), secret("y", "s"), account, pod)
		api.Delete(namespace("x"), "")
		apitest.Settle(5 * time.Second)
		ns, ok := apitest.Get[*corev1.Namespace](api, "", "x")
		if !ok || ns.Status.Phase != corev1.NamespaceTerminating {
			t.Fatalf("while its pod terminates: namespace exists: %v, %+v", ok, ns)
		}
		if len(apitest.List[*corev1.Secret](api, "x")) != 1 {
			t.Error("the Secret was deleted before the pod, which may mount it")
		}
		conditions := ""
		for _, c := range ns.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				conditions += c.Message
			}
		}
		if conditions != "Some resources are remaining: pods. has 1 resource instances" {
			t.Errorf("conditions %q", conditions)
		}
		before := api.Store.Revision()
		apitest.Settle(time.Minute)
		if api.Store.Revision() != before {
			t.Error("the controller wrote although nothing changed")
		}
		api.EndPod(pod)
		synctest.Wait()
		if _, ok := apitest.Get[*corev1.Namespace](api, "", "x"); ok {
			t.Error("the empty namespace was not deleted")
		}
		if len(apitest.List[*corev1.Secret](api, "y")) != 1 {
			t.Error("the Secret of another namespace was deleted")
		}
	})
}

// A namespace is kept until every API server that may have objects in it has responded. Its conditions name the API
// groups that have not.
func TestWaitsForSilentServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		var silent atomic.Bool
		silent.Store(true)
		api.Run(New(api.Deps(), Config{Kinds: apitest.Kinds(), Silent: func() []string {
			if silent.Load() {
				return []string{"wardle.example.com/v1"}
			}
			return nil
		}}))
		api.Create(namespace("x"), secret("x", "s"))
		api.Delete(namespace("x"), "")
		apitest.Settle(time.Minute)
		ns, ok := apitest.Get[*corev1.Namespace](api, "", "x")
		if !ok || len(apitest.List[*corev1.Secret](api, "x")) > 0 {
			t.Fatal("the namespace was deleted, or its Secret was not")
		}
		failed := slices.ContainsFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceDeletionDiscoveryFailure && c.Status == corev1.ConditionTrue &&
				strings.Contains(c.Message, "wardle.example.com/v1")
		})
		if !failed {
			t.Errorf("conditions %v", ns.Status.Conditions)
		}
		silent.Store(false)
		apitest.Settle(time.Minute)
		if _, ok := apitest.Get[*corev1.Namespace](api, "", "x"); ok {
			t.Error("the namespace remains after the server has answered")
		}
	})
}

// Objects of a kind that cannot be watched are deleted, and the namespace waits for them.
func TestUnwatchedKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), Config{Kinds: apitest.Unwatched(client.Secrets)}))
		held := secret("x", "s")
		held.Finalizers = []string{"example.com/keep"}
		api.Create(namespace("x"), namespace("y"), held, secret("x", "free"), secret("y", "other"))
		api.Delete(namespace("x"), "")
		apitest.Settle(time.Minute)
		if left := apitest.List[*corev1.Secret](api, ""); len(left) != 2 || left[0].DeletionTimestamp == nil {
			t.Errorf("secrets %v", left)
		}
		apitest.Change(api, held, "", func(s *corev1.Secret) { s.Finalizers = nil })
		apitest.Settle(maxRecheck)
		if _, ok := apitest.Get[*corev1.Namespace](api, "", "x"); ok {
			t.Error("the empty namespace was not deleted")
		}
	})
}

// A namespace waits for objects with finalizers, with growing delays while nothing changes.
func TestWaitsForFinalizers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		c := New(api.Deps(), Config{Kinds: apitest.Kinds()})
		api.Run(c)
		held := secret("x", "s")
		held.Finalizers = []string{"example.com/keep"}
		api.Create(namespace("x"), held, secret("x", "free"))
		api.Delete(namespace("x"), "")
		apitest.Settle(time.Hour)
		ns, _ := apitest.Get[*corev1.Namespace](api, "", "x")
		conditions := map[corev1.NamespaceConditionType]string{}
		for _, cond := range ns.Status.Conditions {
			conditions[cond.Type] = string(cond.Status) + " " + cond.Reason + ": " + cond.Message
		}
		for condition, want := range map[corev1.NamespaceConditionType]string{
			corev1.NamespaceDeletionDiscoveryFailure: "False ResourcesDiscovered: All resources successfully discovered",
			corev1.NamespaceDeletionGVParsingFailure: "False ParsedGroupVersions: All legacy kube types successfully parsed",
			corev1.NamespaceDeletionContentFailure: "False ContentDeleted: All content successfully deleted, " +
				"may be waiting on finalization",
			corev1.NamespaceContentRemaining: "True SomeResourcesRemain: Some resources are remaining: secrets. has " +
				"1 resource instances",
			corev1.NamespaceFinalizersRemaining: "True SomeFinalizersRemain: Some content in the namespace has " +
				"finalizers remaining: example.com/keep in 1 resource instances",
		} {
			if conditions[condition] != want {
				t.Errorf("%s: %s", condition, conditions[condition])
			}
		}
		if again := c.recheck(ns); again != maxRecheck {
			t.Errorf("after an hour the namespace is checked every %s", again)
		}
		apitest.Change(api, held, "", func(s *corev1.Secret) { s.Finalizers = nil })
		apitest.Settle(maxRecheck)
		if _, ok := apitest.Get[*corev1.Namespace](api, "", "x"); ok {
			t.Error("the empty namespace was not deleted")
		}
	})
}
