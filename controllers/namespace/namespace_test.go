package namespace

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
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

func TestEmptiesThenGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), Config{}))
		pod := apitest.Pod("x", "p", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "default"}}
		api.Create(namespace("x"), namespace("y"), secret("x", "s"), secret("y", "s"), account, pod)
		api.Delete(namespace("x"), "")
		apitest.Settle(5 * time.Second)
		ns, ok := apitest.Get[*corev1.Namespace](api, "", "x")
		if !ok || ns.Status.Phase != corev1.NamespaceTerminating {
			t.Fatalf("while its pod is dying: there %v, %+v", ok, ns)
		}
		if len(apitest.List[*corev1.Secret](api, "x")) != 0 {
			t.Error("the secret is left")
		}
		told := ""
		for _, c := range ns.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				told += c.Message
			}
		}
		if !strings.Contains(told, "pods. has 1 resource instances") {
			t.Errorf("conditions tell %q", told)
		}
		before := api.Store.Revision()
		apitest.Settle(time.Minute)
		if api.Store.Revision() != before {
			t.Error("conditions written again and again")
		}
		if _, err := api.Client.Delete(t.Context(), client.RefOf(pod), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, ok := apitest.Get[*corev1.Namespace](api, "", "x"); ok {
			t.Error("the empty namespace is left")
		}
		if len(apitest.List[*corev1.Secret](api, "y")) != 1 {
			t.Error("another namespace lost its secret")
		}
	})
}
