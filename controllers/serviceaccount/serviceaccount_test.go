package serviceaccount

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryNamespaceHasItsAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps()))
		has := func(namespace string) bool {
			synctest.Wait()
			_, ok := apitest.Get[*corev1.ServiceAccount](api, namespace, account)
			return ok
		}
		if !has("kube-system") {
			t.Error("an existing namespace has no default service account")
		}
		api.Create(&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "new"}})
		if !has("new") {
			t.Error("a new namespace has no default service account")
		}
		api.Delete(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: account}}, "")
		if !has("new") {
			t.Error("the controller did not recreate the service account")
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
		api.Delete(ns, "") // no namespace controller runs, so the namespace stays terminating
		api.Delete(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: account}}, "")
		if has("new") {
			t.Error("the controller recreated the service account in a terminating namespace")
		}
	})
}
