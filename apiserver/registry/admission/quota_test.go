package admission_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// object decodes an object of "tenant".
func object[T client.Object](t testing.TB, into T, text string) T {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	into.SetNamespace("tenant")
	return into
}

func quotaOf(t testing.TB, name, spec string) *corev1.ResourceQuota {
	t.Helper()
	return object(t, new(corev1.ResourceQuota), `{metadata: {name: `+name+`}, spec: `+spec+`}`)
}

func podOf(t testing.TB, name, resources string) *corev1.Pod {
	t.Helper()
	return object(t, new(corev1.Pod), `{metadata: {name: `+name+
		`}, spec: {containers: [{name: c, image: "web:1", resources: `+resources+`}]}}`)
}

// script creates objects in their order. The last one must be rejected with the error.
func script(t *testing.T, want string, objs ...client.Object) {
	t.Helper()
	r := open(t, nil)
	mustCreate(t, r, objs[:len(objs)-1]...)
	_, err := r.Create(t.Context(), objs[len(objs)-1])
	wantRefusal(t, err, http.StatusForbidden, want)
}

func TestQuotaOfPods(t *testing.T) {
	t.Parallel()
	compute := quotaOf(t, "compute", `{hard: {requests.cpu: "1", limits.memory: 1Gi, pods: 2}}`)
	one := `{requests: {cpu: 400m}, limits: {memory: 300Mi, cpu: 2}}`
	for name, c := range map[string]struct {
		objs []client.Object
		want string
	}{
		"fits": {[]client.Object{compute.DeepCopy(), podOf(t, "a", one), podOf(t, "b", one)}, ""},
		"one more": {[]client.Object{compute.DeepCopy(), podOf(t, "a", one), podOf(t, "b", one), podOf(t, "c", one)},
			`pods "c" is forbidden: exceeded quota: compute, requested: pods=1,requests.cpu=400m, ` +
				`used: pods=2,requests.cpu=800m, limited: pods=2,requests.cpu=1`},
		"too big": {[]client.Object{compute.DeepCopy(),
			podOf(t, "a", `{requests: {cpu: 2}, limits: {memory: 2Gi, cpu: 2}}`)},
			`exceeded quota: compute, requested: limits.memory=2Gi,requests.cpu=2, used: limits.memory=0,requests.cpu=0, ` +
				`limited: limits.memory=1Gi,requests.cpu=1`},
		"no requests and limits": {[]client.Object{compute.DeepCopy(), podOf(t, "a", `{}`)},
			`pods "a" is forbidden: failed quota: compute: must specify limits.memory for: c; requests.cpu for: c`},
		"best effort": {[]client.Object{quotaOf(t, "effort", `{hard: {pods: 1}, scopes: [BestEffort]}`), podOf(t, "a", `{}`),
			podOf(t, "b", one), podOf(t, "c", `{}`)},
			`exceeded quota: effort, requested: pods=1, used: pods=1, limited: pods=1`},
		"a device": {[]client.Object{quotaOf(t, "gpus", `{hard: {requests.example.com/gpu: 1}}`),
			podOf(t, "a", `{limits: {example.com/gpu: 2}}`)},
			`exceeded quota: gpus, requested: requests.example.com/gpu=2, used: requests.example.com/gpu=0, ` +
				`limited: requests.example.com/gpu=1`},
		"all pods": {[]client.Object{quotaOf(t, "all", `{hard: {count/pods: 1}}`), podOf(t, "a", `{}`), podOf(t, "b", `{}`)},
			`exceeded quota: all, requested: count/pods=1, used: count/pods=1, limited: count/pods=1`},
		"class by selector": {[]client.Object{quotaOf(t, "none",
			`{hard: {pods: 0}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: DoesNotExist}]}}`),
			podOf(t, "a", `{}`)},
			`exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, c.want, c.objs...)
		})
	}
}

func TestQuotaOfOtherKinds(t *testing.T) {
	t.Parallel()
	configMap := func(name string) client.Object {
		return object(t, new(corev1.ConfigMap), `{metadata: {name: `+name+`}}`)
	}
	claim := func(name, class, size string) client.Object {
		return object(t, new(corev1.PersistentVolumeClaim), `{metadata: {name: `+name+`}, spec: {storageClassName: `+class+
			`, accessModes: [ReadWriteOnce], resources: {requests: {storage: `+size+`}}}}`)
	}
	for name, c := range map[string]struct {
		objs []client.Object
		want string
	}{
		"by its short name": {[]client.Object{quotaOf(t, "q", `{hard: {configmaps: 1}}`), configMap("a"), configMap("b")},
			`configmaps "b" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1`},
		"by count": {[]client.Object{quotaOf(t, "q", `{hard: {count/configmaps: 1}}`), configMap("a"), configMap("b")},
			`exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1`},
		"quotas themselves": {[]client.Object{quotaOf(t, "q", `{hard: {resourcequotas: 1}}`), quotaOf(t, "r", `{}`)},
			`exceeded quota: q, requested: resourcequotas=1, used: resourcequotas=1, limited: resourcequotas=1`},
		"of another group": {[]client.Object{quotaOf(t, "q", `{hard: {count/roles.rbac.authorization.k8s.io: 0}}`),
			object(t, new(corev1.Secret), `{metadata: {name: a}}`)}, ""},
		"storage": {[]client.Object{quotaOf(t, "q", `{hard: {requests.storage: 3Gi}}`), claim("a", "slow", "2Gi"),
			claim("b", "slow", "2Gi")},
			`exceeded quota: q, requested: requests.storage=2Gi, used: requests.storage=2Gi, limited: requests.storage=3Gi`},
		"storage of a class": {[]client.Object{quotaOf(t, "q",
			`{hard: {gold.storageclass.storage.k8s.io/persistentvolumeclaims: 1}}`), claim("a", "gold", "1Gi"),
			claim("b", "slow", "1Gi"), claim("c", "gold", "1Gi")},
			`exceeded quota: q, requested: gold.storageclass.storage.k8s.io/persistentvolumeclaims=1, ` +
				`used: gold.storageclass.storage.k8s.io/persistentvolumeclaims=1, ` +
				`limited: gold.storageclass.storage.k8s.io/persistentvolumeclaims=1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, c.want, c.objs...)
		})
	}
}

func TestDeletedObjectsReleaseQuota(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	mustCreate(t, r, quotaOf(t, "q", `{hard: {pods: 1}}`), podOf(t, "a", `{}`))
	_, err := r.Create(t.Context(), podOf(t, "b", `{}`))
	wantRefusal(t, err, http.StatusForbidden, "exceeded quota: q")
	if _, err := client.Update(t.Context(), r, podOf(t, "a", `{}`), "status", func(p *corev1.Pod) error {
		p.Status.Phase = corev1.PodSucceeded
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, r, podOf(t, "b", `{}`))
	if _, err := r.Delete(t.Context(), client.RefOf(podOf(t, "b", `{}`)), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, r, podOf(t, "c", `{}`))
}

func TestFailedWriteReleasesQuota(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	mustCreate(t, r, quotaOf(t, "q", `{hard: {configmaps: 2}}`), object(t, new(corev1.ConfigMap), `{metadata: {name: a}}`))
	for range 3 { // names in use: charged, then rejected by the store
		if _, err := r.Create(t.Context(), object(t, new(corev1.ConfigMap),
			`{metadata: {name: a}}`)); !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if _, err := r.Create(registry.DryRun(t.Context()), object(t, new(corev1.ConfigMap),
		`{metadata: {name: b}}`)); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, r, object(t, new(corev1.ConfigMap), `{metadata: {name: b}}`))
	_, err := r.Create(registry.DryRun(t.Context()), object(t, new(corev1.ConfigMap), `{metadata: {name: c}}`))
	wantRefusal(t, err, http.StatusForbidden, "exceeded quota: q")
}

func TestUpdatesAreCharged(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: "p",
		AllowVolumeExpansion: new(true)}
	claim := object(t, new(corev1.PersistentVolumeClaim),
		`{metadata: {name: a}, spec: {storageClassName: slow, accessModes: [ReadWriteOnce], `+
			`resources: {requests: {storage: 1Gi}}}}`)
	service := object(t, new(corev1.Service), `{metadata: {name: a}, spec: {ports: [{port: 80}, {name: b, port: 81}]}}`)
	service.Spec.Ports[0].Name = "a"
	mustCreate(t, r, class, quotaOf(t, "q", `{hard: {requests.storage: 3Gi, services.nodeports: 1}}`), claim.DeepCopy(),
		service.DeepCopy())
	if _, err := client.Update(t.Context(), r, claim, "status", func(c *corev1.PersistentVolumeClaim) error {
		c.Status.Phase = corev1.ClaimBound
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	resize := func(size string) error {
		_, err := client.Update(t.Context(), r, claim, "", func(c *corev1.PersistentVolumeClaim) error {
			c.Spec.Resources.Requests = object(t, new(corev1.PersistentVolumeClaim), `{spec: {resources: {requests: {storage: `+
				size+`}}}}`).Spec.Resources.Requests
			return nil
		})
		return err
	}
	wantRefusal(t, resize("4Gi"), http.StatusForbidden,
		`persistentvolumeclaims "a" is forbidden: exceeded quota: q, requested: requests.storage=3Gi, `+
			`used: requests.storage=1Gi, limited: requests.storage=3Gi`)
	wantRefusal(t, resize("3Gi"), 0, "")
	_, err := client.Update(t.Context(), r, service, "", func(s *corev1.Service) error {
		s.Spec.Type = corev1.ServiceTypeNodePort
		return nil
	})
	wantRefusal(t, err, http.StatusForbidden,
		`services "a" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, `+
			`limited: services.nodeports=1`)
}

func TestClaimsExpandOnlyIfClassAllows(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	claim := object(t, new(corev1.PersistentVolumeClaim),
		`{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`)
	mustCreate(t, r,
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: "p"},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow",
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "p"},
		claim.DeepCopy())
	stored, err := client.Update(t.Context(), r, claim, "status", func(c *corev1.PersistentVolumeClaim) error {
		c.Status.Phase = corev1.ClaimBound
		return nil
	})
	if err != nil || stored.Spec.StorageClassName == nil || *stored.Spec.StorageClassName != "slow" {
		t.Fatalf("no default class: %v, %v", stored, err)
	}
	resize := func(size string) error {
		_, err := client.Update(t.Context(), r, claim, "", func(c *corev1.PersistentVolumeClaim) error {
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
			return nil
		})
		return err
	}
	const refused = `is forbidden: only dynamically provisioned pvc can be resized and the storageclass that ` +
		`provisions the pvc must support resize`
	wantRefusal(t, resize("5Gi"), http.StatusForbidden, `persistentvolumeclaims "a" `+refused)
	if _, err := client.Update(t.Context(), r, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}}, "",
		func(c *storagev1.StorageClass) error { c.AllowVolumeExpansion = new(true); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(t.Context(), r, claim, "status", func(c *corev1.PersistentVolumeClaim) error {
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, resize("5Gi"), 0, "")
	wantRefusal(t, resize("2Gi"), 0, "") // it failed
	wantRefusal(t, resize("1Gi"), http.StatusUnprocessableEntity,
		`PersistentVolumeClaim "a" is invalid: spec.resources.requests.storage: Forbidden: field can not be less than `+
			`status.capacity`)
	claim = object(t, new(corev1.PersistentVolumeClaim),
		`{metadata: {name: b}, spec: {storageClassName: "", accessModes: [ReadWriteOnce], `+
			`resources: {requests: {storage: 1Gi}}}}`)
	mustCreate(t, r, claim.DeepCopy())
	if _, err := client.Update(t.Context(), r, claim, "status", func(c *corev1.PersistentVolumeClaim) error {
		c.Status.Phase = corev1.ClaimBound
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, resize("5Gi"), http.StatusForbidden, `persistentvolumeclaims "b" `+refused)
}

// gated is a store that stores pods only when its gate is open.
type gated struct {
	store.Store
	gate chan struct{}
}

func (g *gated) Update(ctx context.Context, key store.Key, change store.Change) (*store.Entry, error) {
	if key.Resource == "pods" {
		<-g.gate
	}
	return g.Store.Update(ctx, key, change)
}

func TestConcurrentWritesStayWithinQuota(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	defer s.Close()
	g := &gated{s, make(chan struct{})}
	r := registry.New(g, resources, registry.Config{})
	mustCreate(t, r, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, account("default"),
		quotaOf(t, "q", `{hard: {pods: 20, requests.cpu: "5"}}`))
	answers := make(chan error)
	for i := range 64 {
		go func() {
			_, err := r.Create(context.Background(), podOf(t, fmt.Sprint("p", i), `{requests: {cpu: 500m}}`))
			answers <- err
		}()
	}
	for range 54 { // nothing is stored yet: admitted pods count as pending writes
		wantRefusal(t, <-answers, http.StatusForbidden,
			"exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=5, limited: requests.cpu=5")
	}
	close(g.gate)
	for range 10 {
		wantRefusal(t, <-answers, 0, "")
	}
	pods, _, err := r.List(t.Context(), client.Selector{Resource: client.Pods, Namespace: "tenant"})
	if err != nil || len(pods) != 10 {
		t.Errorf("%d pods stored, want 10 (%v)", len(pods), err)
	}
}

func TestManyConcurrentWrites(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	mustCreate(t, r, quotaOf(t, "q", `{hard: {count/configmaps: 50}}`))
	var wg sync.WaitGroup
	var created atomic.Int32
	for i := range 80 {
		wg.Go(func() {
			_, err := r.Create(context.Background(), object(t, new(corev1.ConfigMap), fmt.Sprintf(`{metadata: {name: c%d}}`, i)))
			if err == nil {
				created.Add(1)
			} else if !apierrors.IsForbidden(err) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if created.Load() != 50 {
		t.Errorf("%d created, want all 50 that there is room for", created.Load())
	}
}

func TestResizedPodIsCharged(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	mustCreate(t, r, quotaOf(t, "q", `{hard: {requests.cpu: "1"}}`), rangeOf(t, `{type: Container, max: {memory: 1Gi}}`),
		podOf(t, "p", `{requests: {cpu: 400m, memory: 1Mi}}`), podOf(t, "other", `{requests: {cpu: 200m}}`))
	resize := func(resources string) error {
		_, err := client.Update(t.Context(), r, podOf(t, "p", `{}`), "resize", func(p *corev1.Pod) error {
			p.Spec.Containers[0].Resources = podOf(t, "p", resources).Spec.Containers[0].Resources
			return nil
		})
		return err
	}
	wantRefusal(t, resize(`{requests: {cpu: 900m, memory: 1Mi}, limits: {memory: 1Gi}}`), http.StatusForbidden,
		`pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, `+
			`limited: requests.cpu=1`)
	wantRefusal(t, resize(`{requests: {cpu: 800m, memory: 1Mi}, limits: {memory: 2Gi}}`), http.StatusForbidden,
		`maximum memory usage per Container is 1Gi, but limit is 2Gi`)
	wantRefusal(t, resize(`{requests: {cpu: 800m, memory: 1Mi}, limits: {memory: 1Gi}}`), 0, "")
}
