package resourcequota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func within(t *testing.T, test func(t *testing.T, api *apitest.API)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), Config{Kinds: apitest.Kinds()}))
		test(t, api)
	})
}

func quotaOf(name string, hard map[corev1.ResourceName]string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for name, amount := range hard {
		q.Spec.Hard[name] = resource.MustParse(amount)
	}
	return q
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func cpu(amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
}

// want checks the status of quota "q": "name=used/hard …".
func want(t *testing.T, api *apitest.API, text string) {
	t.Helper()
	q, ok := apitest.Get[*corev1.ResourceQuota](api, "default", "q")
	if !ok {
		t.Fatal("no quota")
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		parts = append(parts, fmt.Sprintf("%s=%s/%s", name, used.String(), hard.String()))
	}
	if got := strings.Join(parts, " "); got != text {
		t.Errorf("got  %s\nwant %s", got, text)
	}
}

func TestUsageFollowsObjects(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(configMap("before"), apitest.Pod("default", "p", cpu("500m")),
			apitest.Pod("kube-system", "elsewhere", cpu("1")))
		api.Create(quotaOf("q",
			map[corev1.ResourceName]string{"configmaps": "5", "requests.cpu": "2", "count/roles.rbac.authorization.k8s.io": "1",
				"count/nothing.example.com": "1"}))
		apitest.Settle(0)
		const rest = " count/nothing.example.com=0/1 count/roles.rbac.authorization.k8s.io=0/1 "
		want(t, api, "configmaps=1/5"+rest+"requests.cpu=500m/2")
		api.Create(configMap("a"), configMap("b"), apitest.Pod("default", "r", cpu("1")))
		apitest.Settle(time.Second)
		want(t, api, "configmaps=3/5"+rest+"requests.cpu=1500m/2")
		api.Phase(apitest.Pod("default", "p"), corev1.PodFailed, false)
		api.Delete(configMap("a"), "")
		apitest.Settle(time.Second)
		want(t, api, "configmaps=2/5"+rest+"requests.cpu=1/2")
		apitest.Change(api, quotaOf("q", nil), "", func(q *corev1.ResourceQuota) {
			q.Spec.Hard = corev1.ResourceList{"secrets": resource.MustParse("3")}
		})
		apitest.Settle(time.Second)
		want(t, api, "secrets=0/3")
		api.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})
		apitest.Settle(time.Second)
		want(t, api, "secrets=1/3")
	})
}

func TestWritesAtMostOncePerSecond(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(quotaOf("q", map[corev1.ResourceName]string{"configmaps": "100"}))
		apitest.Settle(time.Second)
		before := api.Store.Revision()
		for i := range 50 { // half a second in total
			api.Create(configMap(fmt.Sprint("c", i)))
			apitest.Settle(10 * time.Millisecond)
		}
		apitest.Settle(2 * time.Second)
		if writes := api.Store.Revision() - before - 50; writes > 2 {
			t.Errorf("%d writes of the status for a burst", writes)
		}
		want(t, api, "configmaps=50/100")
		before = api.Store.Revision()
		apitest.Change(api, configMap("c0"), "", func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "b"} })
		apitest.Settle(time.Hour)
		if n := api.Store.Revision() - before; n != 1 {
			t.Errorf("%d writes after a change that does not change the usage", n-1)
		}
	})
}

func TestScopes(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		q := quotaOf("q", map[corev1.ResourceName]string{"pods": "3"})
		q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
		api.Create(q, apitest.Pod("default", "free"), apitest.Pod("default", "paid", cpu("1")))
		apitest.Settle(2 * time.Second)
		want(t, api, "pods=1/3")
	})
}

func TestWatchesOnlyLimitedResources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		watched := &watching{Client: api.Client, open: map[string]int{}}
		deps := api.Deps()
		deps.Client = watched
		api.Run(New(deps, Config{Kinds: apitest.Kinds()}))
		watched.want(t, "resourcequotas=1")
		api.Create(quotaOf("q", map[corev1.ResourceName]string{"pods": "1", "limits.cpu": "1"}))
		apitest.Settle(time.Second)
		watched.want(t, "pods=1 resourcequotas=1")
		api.Delete(quotaOf("q", nil), "")
		apitest.Settle(2 * time.Second)
		watched.want(t, "resourcequotas=1")
	})
}
