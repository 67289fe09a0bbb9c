package rootca

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublishesAndRepairs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), Config{CA: []byte("pem")}))
		api.Create(&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "new"}})
		published := func(when string) {
			t.Helper()
			synctest.Wait()
			if cm, ok := apitest.Get[*corev1.ConfigMap](api, "new", rootCA); !ok || cm.Data["ca.crt"] != "pem" ||
				len(cm.Data) != 1 {
				t.Errorf("%s: %v %+v", when, ok, cm)
			}
		}
		published("new namespace")
		if cm, ok := apitest.Get[*corev1.ConfigMap](api, metav1.NamespaceSystem, clientCA); !ok ||
			cm.Data["client-ca-file"] != "pem" {
			t.Errorf("ConfigMap for aggregated API servers: %v %+v", ok, cm)
		}
		if _, ok := apitest.Get[*corev1.ConfigMap](api, "new", clientCA); ok {
			t.Error("the ConfigMap for aggregated API servers exists in another namespace")
		}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: rootCA}}
		apitest.Change(api, cm, "", func(c *corev1.ConfigMap) { c.Data = map[string]string{"ca.crt": "forged", "x": "y"} })
		published("after it was changed")
		api.Delete(cm, "")
		published("after it was deleted")
	})
}
