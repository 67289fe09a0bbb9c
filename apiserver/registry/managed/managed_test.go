package managed_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/managed"
)

// resource returns the served resource of a kind and version.
func resource(t *testing.T, version, name string) *kind.Resource {
	t.Helper()
	all := registry.Resources()
	i := slices.IndexFunc(all,
		func(r kind.Resource) bool { return r.Kind == name && r.GVR.GroupVersion().String() == version })
	if i < 0 {
		t.Fatalf("no %s of %s is served", name, version)
	}
	return &all[i]
}

func patch(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// owned returns the fields of a manager as JSON.
func owned(obj kind.Object, manager string) string {
	for _, e := range obj.GetManagedFields() {
		if e.Manager == manager {
			return e.APIVersion + " " + string(e.FieldsV1.GetRawBytes())
		}
	}
	return ""
}

// A write owns the fields that it changes and no others.
func TestWriteOwnsOnlyItsFields(t *testing.T) {
	t.Parallel()
	fields := managed.New(clock.RealClock{})
	pod := `{apiVersion: v1, kind: Pod, metadata: {labels: {a: b}, ownerReferences: [{apiVersion: v1, kind: Node, name: node, uid: u}]},
spec: {nodeName: node, containers: [{name: c, image: i, resources: {limits: {cpu: 1}}}], ephemeralContainers: [{name: e, image: i}]}, status: {phase: Running}}`
	for sub, want := range map[string]string{
		"": `{"f:metadata":{"f:labels":{"f:a":{}},"f:ownerReferences":{"k:{\"uid\":\"u\"}":{}}},` +
			`"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{},` +
			`"f:resources":{"f:limits":{"f:cpu":{}}}}},` +
			`"f:ephemeralContainers":{"k:{\"name\":\"e\"}":{".":{},"f:image":{},"f:name":{}}},"f:nodeName":{}}}`,
		"status":              `{"f:metadata":{"f:labels":{"f:a":{}}},"f:status":{"f:phase":{}}}`,
		"ephemeralcontainers": `{"f:spec":{"f:ephemeralContainers":{"k:{\"name\":\"e\"}":{".":{},"f:image":{},"f:name":{}}}}}`,
		"resize":              `{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:resources":{"f:limits":{"f:cpu":{}}}}}}}`,
	} {
		target := managed.Target{Resource: resource(t, "v1", "Pod"), Subresource: sub}
		obj, err := fields.Apply(target, nil, patch(t, pod), "ann", false)
		if err != nil {
			t.Errorf("%q: %v", sub, err)
			continue
		}
		if got := owned(obj, "ann"); got != "v1 "+want {
			t.Errorf("%q owns\n%s, want\n%s", sub, got, want)
		}
	}
}

// Fields that were applied in one version keep their owner when another version is written.
func TestViews(t *testing.T) {
	t.Parallel()
	fields := managed.New(clock.RealClock{})
	v1, v2 := resource(t, "autoscaling/v1", "HorizontalPodAutoscaler"), resource(t, "autoscaling/v2",
		"HorizontalPodAutoscaler")
	const hpa = `{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 3, ` +
		`targetCPUUtilizationPercentage: 50}}`
	old, err := fields.Apply(managed.Target{Resource: v1, Views: []*kind.Resource{v2}}, nil, patch(t, hpa), "ann", false)
	if err != nil {
		t.Fatal(err)
	}
	old.SetUID("u")
	stored := v1.View.Store(old)
	stored.GetObjectKind().SetGroupVersionKind(v2.GVK())
	_, err = fields.Apply(managed.Target{Resource: v2, Views: []*kind.Resource{v1}}, stored,
		patch(t, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 4}}`), "bob", false)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(),
		`conflict with "ann" using autoscaling/v1: .spec.maxReplicas`) &&
		!strings.Contains(err.Error(), `conflict with "ann": .spec.maxReplicas`) {
		t.Errorf("got %v, want a conflict with ann", err)
	}
}

// Updates record the changed fields with the manager and the version. They do not track an object that was never applied.
func TestUpdate(t *testing.T) {
	t.Parallel()
	fields := managed.New(clock.RealClock{})
	res := resource(t, "apps/v1", "Deployment")
	target := managed.Target{Resource: res}
	plain := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}
	next := plain.DeepCopy()
	next.Spec.Replicas = new(int32(2))
	if err := fields.Update(target, next, plain, "bob"); err != nil || next.ManagedFields != nil || fields.Loaded() {
		t.Errorf("an object that was never applied got %v, %v", next.ManagedFields, err)
	}
	applied, err := fields.Apply(target, nil,
		patch(t, `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1, paused: true}}`), "ann", false)
	if err != nil {
		t.Fatal(err)
	}
	applied.SetUID("u")
	next = applied.DeepCopyObject().(*appsv1.Deployment)
	next.Spec.Replicas = new(int32(2))
	before, _ := json.Marshal(applied)
	if err := fields.Update(target, next, applied, "bob"); err != nil {
		t.Fatal(err)
	}
	if got, want := owned(next, "bob"), `apps/v1 {"f:spec":{"f:replicas":{}}}`; got != want {
		t.Errorf("bob owns %s, want %s", got, want)
	}
	if got, want := owned(next, "ann"), `apps/v1 {"f:spec":{"f:paused":{}}}`; got != want {
		t.Errorf("ann owns %s, want %s", got, want)
	}
	if after, _ := json.Marshal(applied); string(before) != string(after) {
		t.Errorf("the current object became %s", after)
	}
}

// kubectl owns the fields that it applied client-side, but not those that others have set since. The first server-side
// apply keeps the latter.
func TestBeforeFirstApply(t *testing.T) {
	t.Parallel()
	fields := managed.New(clock.RealClock{})
	target := managed.Target{Resource: resource(t, "apps/v1", "Deployment")}
	const applied = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","labels":{"a":"b"}},` +
		`"spec":{"paused":true,"minReadySeconds":3}}`
	for name, c := range map[string]struct{ annotation, kubectls, others string }{
		"by kubectl": {applied,
			`apps/v1 {"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}},` +
				`"f:labels":{".":{},"f:a":{}}},"f:spec":{`,
			`"f:minReadySeconds":{},"f:replicas":{}`},
		"not by kubectl":  {"", "", `"f:labels":{".":{},"f:a":{}}`},
		"another version": {strings.ReplaceAll(applied, "apps/v1", "apps/v1beta1"), "", `"f:labels":{".":{},"f:a":{}}`},
		"not JSON":        {"{", "", `"f:labels":{".":{},"f:a":{}}`},
		"a huge quantity": {strings.Replace(applied, `"paused":true`,
			`"template":{"spec":{"overhead":{"cpu":"1e999999999"}}}`, 1), "", `"f:labels":{".":{},"f:a":{}}`},
	} {
		cur := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", Labels: map[string]string{"a": "b"}}}
		cur.SetGroupVersionKind(target.Resource.GVK())
		cur.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
		if c.annotation != "" {
			cur.Annotations[corev1.LastAppliedConfigAnnotation] = c.annotation
		}
		cur.Spec = appsv1.DeploymentSpec{Paused: true, MinReadySeconds: 5, Replicas: new(int32(5))}
		obj, err := fields.Apply(target, cur, patch(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, `+
			`spec: {paused: true}}`), "ann", false)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := owned(obj, "kubectl-client-side-apply"); !strings.HasPrefix(got, c.kubectls) ||
			(got == "") != (c.kubectls == "") ||
			strings.Contains(got, "replicas") || strings.Contains(got, "minReadySeconds") {
			t.Errorf("%s: kubectl owns %s, want %s", name, got, c.kubectls)
		}
		if got := owned(obj, "before-first-apply"); !strings.Contains(got, c.others) || !strings.Contains(got, "revision") {
			t.Errorf("%s: before-first-apply owns %s, want %s", name, got, c.others)
		}
		if owned(obj, "opening") != "" || len(cur.ManagedFields) > 0 {
			t.Errorf("%s: managers %v, before %v", name, obj.GetManagedFields(), cur.ManagedFields)
		}
	}
}

// An update without managedFields keeps them, an empty list clears them, and invalid entries are ignored.
func TestManagersFromClients(t *testing.T) {
	t.Parallel()
	fields := managed.New(clock.RealClock{})
	target := managed.Target{Resource: resource(t, "v1", "ConfigMap")}
	cur, err := fields.Apply(target, nil, patch(t, `{apiVersion: v1, kind: ConfigMap, data: {a: b}}`), "ann", false)
	if err != nil {
		t.Fatal(err)
	}
	cur.SetUID("u")
	for name, c := range map[string]struct {
		sent []metav1.ManagedFieldsEntry
		want int
	}{
		"nothing":    {nil, 1},
		"no entries": {[]metav1.ManagedFieldsEntry{}, 0},
		"one empty":  {[]metav1.ManagedFieldsEntry{{}}, 0},
		"nonsense": {[]metav1.ManagedFieldsEntry{{Manager: "x", Operation: "Apply", APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:a":7}`)}}, 1},
	} {
		next := cur.DeepCopyObject().(*corev1.ConfigMap)
		next.ManagedFields = c.sent
		if err := fields.Update(target, next, cur, "bob"); err != nil || len(next.ManagedFields) != c.want {
			t.Errorf("%s: %v, %v; want %d", name, next.ManagedFields, err, c.want)
		}
	}
}

// KeepTimes restores the old times unless an object has other changes, too.
func TestKeepTimes(t *testing.T) {
	t.Parallel()
	object := func(data string, at int64, manager string) *corev1.ConfigMap {
		return &corev1.ConfigMap{Data: map[string]string{"a": data}, ObjectMeta: metav1.ObjectMeta{
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: manager, Time: new(metav1.Unix(at, 0))}}}}
	}
	cur := object("b", 1, "ann")
	for name, c := range map[string]struct {
		next *corev1.ConfigMap
		want int64
	}{
		"nothing else": {object("b", 2, "ann"), 1},
		"other data":   {object("c", 2, "ann"), 2},
		"other owner":  {object("b", 2, "bob"), 2},
	} {
		managed.KeepTimes(c.next, cur)
		if got := c.next.ManagedFields[0].Time.Unix(); got != c.want {
			t.Errorf("%s: time %d, want %d", name, got, c.want)
		}
	}
}

// The schemas are released some minutes after the last apply.
func TestSchemasAreReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fields := managed.New(clock.RealClock{})
		target := managed.Target{Resource: resource(t, "v1", "ConfigMap")}
		for range 3 {
			if _, err := fields.Apply(target, nil, patch(t, `{apiVersion: v1, kind: ConfigMap}`), "ann", false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Minute) // the interval of GitOps tools
			if !fields.Loaded() {
				t.Error("the schemas are released between two applies")
			}
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if fields.Loaded() {
			t.Error("schemas stay in memory")
		}
	})
}

func BenchmarkApply(b *testing.B) {
	fields := managed.New(clock.RealClock{})
	all := registry.Resources()
	i := slices.IndexFunc(all, func(r kind.Resource) bool { return r.Kind == "Deployment" })
	target := managed.Target{Resource: &all[i]}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 1,
template: {spec: {containers: [{name: c, image: i, ports: [{containerPort: 80, protocol: TCP}]}]}}}}`), &u.Object); err != nil {
		b.Fatal(err)
	}
	cur, err := fields.Apply(target, nil, u, "ann", false)
	if err != nil {
		b.Fatal(err)
	}
	cur.SetUID("u")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fields.Apply(target, cur, u.DeepCopy(), "ann", false); err != nil {
			b.Fatal(err)
		}
	}
}
