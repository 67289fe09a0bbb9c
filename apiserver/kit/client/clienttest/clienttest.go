// Package clienttest is the contract of client.Client: tests that every implementation passes, in process and
// over HTTP.
package clienttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/client"
)

// Run tests the clients that open returns: of an API with the namespace "default", in which no controller
// changes what the tests create.
func Run(t *testing.T, open func(t *testing.T) client.Client) {
	for name, test := range map[string]func(*testing.T, client.Client){
		"CreateGivesAnIdentity":            testCreate,
		"GenerateNameIsUnique":             testGenerateName,
		"CreateRefuses":                    testCreateRefuses,
		"UpdateIsOptimistic":               testUpdate,
		"StatusAndSpecAreSeparate":         testStatus,
		"ScaleChangesReplicas":             testScale,
		"BindingHappensOnce":               testBinding,
		"SelectorsSelect":                  testSelectors,
		"WatchTellsTheStory":               testWatch,
		"DeleteAtOnce":                     testDelete,
		"GracefulDeleteHasTwoPhases":       testGracefulDelete,
		"ShorterGraceWins":                 testShorterGrace,
		"FinalizersHold":                   testFinalizers,
		"PropagationPolicySetsFinalizers":  testPropagation,
		"WrongUIDDoesNotDelete":            testPreconditions,
		"TerminatingNamespaceTakesNothing": testNamespace,
		"TokensAreIssued":                  testToken,
		"EvictionAsksFirst":                testEviction,
		"PartsOfAPodAreWrittenAlone":       testPodParts,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// Pod is a small valid pod.
func Pod(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "monopod.local/web:1"}}},
	}
}

func replicaSet(name string) *appsv1.ReplicaSet {
	l := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{Kind: "ReplicaSet", APIVersion: "apps/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: l},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: Pod("x").Spec},
		},
	}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}}, Data: data,
	}
}

func create[T client.Object](t *testing.T, c client.Client, obj T) T {
	t.Helper()
	out, err := c.Create(t.Context(), obj)
	if err != nil {
		t.Fatalf("create %s: %v", obj.GetName(), err)
	}
	return out.(T)
}

func testCreate(t *testing.T, c client.Client) {
	pod := create(t, c, Pod("a"))
	if pod.UID == "" || pod.ResourceVersion == "" || pod.CreationTimestamp.IsZero() || pod.Kind != "Pod" ||
		pod.APIVersion != "v1" {
		t.Errorf("name, UID, revision or type is missing: %+v", pod.ObjectMeta)
	}
	if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || pod.Status.Phase != corev1.PodPending {
		t.Errorf("no defaults: %s %s", pod.Spec.RestartPolicy, pod.Status.Phase)
	}
	got, err := client.Get[*corev1.Pod](t.Context(), c, "default", "a")
	if err != nil || got.UID != pod.UID || got.ResourceVersion != pod.ResourceVersion {
		t.Errorf("get: %v, %v", got, err)
	}
	if _, err := c.Create(t.Context(), Pod("a")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: %v", err)
	}
}

func testGenerateName(t *testing.T, c client.Client) {
	seen := map[string]bool{}
	for range 5 {
		p := Pod("")
		p.GenerateName = "web-"
		p = create(t, c, p)
		if seen[p.Name] || len(p.Name) != len("web-")+5 {
			t.Errorf("generated name %q", p.Name)
		}
		seen[p.Name] = true
	}
}

func testCreateRefuses(t *testing.T, c client.Client) {
	for name, try := range map[string]struct {
		change func(*corev1.Pod)
		is     func(error) bool
	}{
		"unknown namespace": {func(p *corev1.Pod) { p.Namespace = "none" }, apierrors.IsNotFound},
		"bad name":          {func(p *corev1.Pod) { p.Name = "No_Good" }, apierrors.IsInvalid},
		"no name":           {func(p *corev1.Pod) { p.Name = "" }, apierrors.IsInvalid},
		"no containers":     {func(p *corev1.Pod) { p.Spec.Containers = nil }, apierrors.IsInvalid},
		"resourceVersion":   {func(p *corev1.Pod) { p.ResourceVersion = "1" }, apierrors.IsBadRequest},
		"priority class":    {func(p *corev1.Pod) { p.Spec.PriorityClassName = "none" }, apierrors.IsForbidden},
	} {
		p := Pod("refused")
		try.change(p)
		if _, err := c.Create(t.Context(), p); !try.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if pods, err := client.List[*corev1.Pod](t.Context(), c, client.Selector{}); err != nil || len(pods) != 0 {
		t.Errorf("an invalid object was stored: %v, %v", pods, err)
	}
}

func testUpdate(t *testing.T, c client.Client) {
	one := create(t, c, configMap("a", map[string]string{"n": "1"}))
	two, err := client.Update(t.Context(), c, one, "", func(cm *corev1.ConfigMap) error {
		cm.Data["n"] = "2"
		return nil
	})
	if err != nil || two.Data["n"] != "2" || two.ResourceVersion == one.ResourceVersion || two.UID != one.UID {
		t.Fatalf("update: %+v, %v", two, err)
	}
	same, err := client.Update(t.Context(), c, one, "", func(*corev1.ConfigMap) error { return nil })
	if err != nil || same.ResourceVersion != two.ResourceVersion {
		t.Errorf("an update that changes nothing was written: %v, %v", same.ResourceVersion, err)
	}
	_, err = c.Update(t.Context(), client.RefOf(one), func(client.Object) (client.Object, error) {
		stale := one.DeepCopy()
		stale.Data["n"] = "3"
		return stale, nil
	})
	if !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}
	if _, err := client.Update(t.Context(), c, configMap("none", nil), "",
		func(*corev1.ConfigMap) error { return nil }); !apierrors.IsNotFound(err) {
		t.Errorf("update of a missing object: %v", err)
	}
}

func testStatus(t *testing.T, c client.Client) {
	pod := create(t, c, Pod("a"))
	got, err := client.Update(t.Context(), c, pod, "status", func(p *corev1.Pod) error {
		p.Status.Phase = corev1.PodRunning
		p.Spec.Containers[0].Image = "other"
		return nil
	})
	if err != nil || got.Status.Phase != corev1.PodRunning ||
		got.Spec.Containers[0].Image != pod.Spec.Containers[0].Image {
		t.Fatalf("status update: %s %s, %v", got.Status.Phase, got.Spec.Containers[0].Image, err)
	}
	if got.Generation != pod.Generation {
		t.Errorf("a status update changed the generation from %d to %d", pod.Generation, got.Generation)
	}
	got, err = client.Update(t.Context(), c, pod, "", func(p *corev1.Pod) error {
		p.Status.Phase = corev1.PodFailed
		p.Spec.Containers[0].Image = "monopod.local/web:2"
		return nil
	})
	if err != nil || got.Status.Phase != corev1.PodRunning || got.Spec.Containers[0].Image != "monopod.local/web:2" ||
		got.Generation != pod.Generation+1 {
		t.Errorf("spec update: %s, generation %d, %v", got.Status.Phase, got.Generation, err)
	}
}

func testScale(t *testing.T, c client.Client) {
	rs := create(t, c, replicaSet("web"))
	ref := client.RefOf(rs).Sub("scale")
	out, err := c.Update(t.Context(), ref, func(cur client.Object) (client.Object, error) {
		s := cur.DeepCopyObject().(*autoscalingv1.Scale)
		s.Spec.Replicas = 7
		return s, nil
	})
	if err != nil || out.(*autoscalingv1.Scale).Spec.Replicas != 7 {
		t.Fatalf("scale: %v, %v", out, err)
	}
	got, err := client.Get[*appsv1.ReplicaSet](t.Context(), c, "default", "web")
	if err != nil || *got.Spec.Replicas != 7 || got.Generation != rs.Generation+1 {
		t.Errorf("replicas %d, generation %d, %v", *got.Spec.Replicas, got.Generation, err)
	}
	_, err = c.Update(t.Context(), ref, func(cur client.Object) (client.Object, error) {
		s := cur.DeepCopyObject().(*autoscalingv1.Scale)
		s.Spec.Replicas = -1
		return s, nil
	})
	if !apierrors.IsInvalid(err) {
		t.Errorf("negative scale: %v", err)
	}
}

func testBinding(t *testing.T, c client.Client) {
	pod := create(t, c, Pod("a"))
	bind := func(node string) (client.Object, error) {
		return c.Update(t.Context(), client.RefOf(pod).Sub("binding"), func(cur client.Object) (client.Object, error) {
			p := cur.DeepCopyObject().(*corev1.Pod)
			p.Spec.NodeName = node
			return p, nil
		})
	}
	out, err := bind("n1")
	if err != nil || out.(*corev1.Pod).Spec.NodeName != "n1" {
		t.Fatalf("bind: %v, %v", out, err)
	}
	conditions := out.(*corev1.Pod).Status.Conditions
	if len(conditions) != 1 || conditions[0].Type != corev1.PodScheduled || conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("conditions %v", conditions)
	}
	if _, err := bind("n2"); !apierrors.IsConflict(err) {
		t.Errorf("second binding: %v", err)
	}
}

func testSelectors(t *testing.T, c client.Client) {
	for _, name := range []string{"a", "b", "c"} {
		create(t, c, configMap(name, nil))
	}
	for _, q := range []struct{ labels, fields, want string }{
		{"", "", "a b c"},
		{"app in (a,b)", "", "a b"},
		{"app!=a", "", "b c"},
		{"", "metadata.name=b", "b"},
		{"app=a", "metadata.name=b", ""},
	} {
		l, err := labels.Parse(q.labels)
		if err != nil {
			t.Fatal(err)
		}
		found, err := client.List[*corev1.ConfigMap](t.Context(), c, client.Selector{
			Namespace: "default", Labels: l, Fields: fields.ParseSelectorOrDie(q.fields)})
		got := ""
		for _, cm := range found {
			if cm.Labels["app"] == cm.Name { // other objects may be published too
				got += " " + cm.Name
			}
		}
		if err != nil || got != " "+q.want && got != q.want {
			t.Errorf("%+v: got %q, %v", q, got, err)
		}
	}
	_, _, err := c.List(t.Context(),
		client.Selector{Resource: client.Pods, Fields: fields.ParseSelectorOrDie("spec.color=red")})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field: %v", err)
	}
}

// timeout limits the wait for an event.
const timeout = 10 * time.Minute

// Story returns the next n events as "TYPE name" lines.
func Story(t *testing.T, ch <-chan watch.Event, n int) []string {
	t.Helper()
	var out []string
	for range n {
		select {
		case ev, ok := <-ch:
			if !ok {
				t.Fatalf("the watch ended after %v", out)
			}
			out = append(out, fmt.Sprintf("%s %s", ev.Type, ev.Object.(client.Object).GetName()))
		case <-time.After(timeout):
			t.Fatalf("no event after %v", out)
		}
	}
	return out
}

func testWatch(t *testing.T, c client.Client) {
	create(t, c, configMap("before", nil))
	sel := client.Selector{Resource: client.ConfigMaps, Namespace: "default",
		Labels: labels.SelectorFromSet(labels.Set{"app": "in"})}
	_, rv, err := c.List(t.Context(), sel)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch, err := c.Watch(ctx, sel, rv)
	if err != nil {
		t.Fatal(err)
	}
	cm := create(t, c, configMap("x", nil))
	for _, app := range []string{"in", "in", "out"} {
		if _, err := client.Update(t.Context(), c, cm, "", func(cm *corev1.ConfigMap) error {
			cm.Labels["app"] = app
			cm.Data = map[string]string{"n": cm.Data["n"] + "."}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	got := Story(t, ch, 3)
	want := []string{"ADDED x", "MODIFIED x", "DELETED x"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	cancel()
	for range ch {
	}
}

func testDelete(t *testing.T, c client.Client) {
	cm := create(t, c, configMap("a", nil))
	out, err := c.Delete(t.Context(), client.RefOf(cm), metav1.DeleteOptions{})
	if err != nil || out.GetUID() != cm.UID {
		t.Fatalf("delete: %v, %v", out, err)
	}
	if _, err := c.Delete(t.Context(), client.RefOf(cm), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("second delete: %v", err)
	}
}

// bound creates a pod bound to a node, so that its deletion has a grace period.
func bound(t *testing.T, c client.Client, name string, finalizers ...string) *corev1.Pod {
	t.Helper()
	p := Pod(name)
	p.Spec.NodeName = "n1"
	p.Finalizers = finalizers
	return create(t, c, p)
}

func remove(t *testing.T, c client.Client, pod *corev1.Pod, grace int64) *corev1.Pod {
	t.Helper()
	out, err := c.Delete(t.Context(), client.RefOf(pod), metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil {
		t.Fatalf("delete with grace %d: %v", grace, err)
	}
	return out.(*corev1.Pod)
}

func exists(t *testing.T, c client.Client, obj client.Object) bool {
	t.Helper()
	_, err := c.Get(t.Context(), client.RefOf(obj))
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func testGracefulDelete(t *testing.T, c client.Client) {
	pod := bound(t, c, "a")
	out, err := c.Delete(t.Context(), client.RefOf(pod), metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dying := out.(*corev1.Pod)
	if dying.DeletionTimestamp == nil || *dying.DeletionGracePeriodSeconds != 30 || dying.Generation != pod.Generation+1 {
		t.Fatalf("deletion with a grace period: %+v", dying.ObjectMeta)
	}
	left := time.Until(dying.DeletionTimestamp.Time)
	if left < 20*time.Second || left > 31*time.Second {
		t.Errorf("deletionTimestamp is %v away, want the grace period of 30 s", left)
	}
	again := remove(t, c, pod, 60)
	if again.ResourceVersion != dying.ResourceVersion {
		t.Error("a deletion with a longer grace period changed the pod")
	}
	remove(t, c, pod, 0)
	if exists(t, c, pod) {
		t.Error("the pod still exists after its deletion without a grace period")
	}
	unbound := create(t, c, Pod("unbound"))
	remove(t, c, unbound, 30)
	if exists(t, c, unbound) {
		t.Error("a pod without a node has a grace period")
	}
}

func testShorterGrace(t *testing.T, c client.Client) {
	pod := bound(t, c, "a")
	first := remove(t, c, pod, 30)
	second := remove(t, c, pod, 10)
	if *second.DeletionGracePeriodSeconds != 10 {
		t.Errorf("grace period %d, want 10", *second.DeletionGracePeriodSeconds)
	}
	if d := first.DeletionTimestamp.Sub(second.DeletionTimestamp.Time); d < 19*time.Second || d > 21*time.Second {
		t.Errorf("deletionTimestamp moved by %v, want 20 s", d)
	}
}

func testFinalizers(t *testing.T, c client.Client) {
	pod := bound(t, c, "a", "example.com/hold")
	dying := remove(t, c, pod, 0)
	if dying.DeletionTimestamp == nil || *dying.DeletionGracePeriodSeconds != 0 {
		t.Fatalf("deleting with a finalizer: %+v", dying.ObjectMeta)
	}
	_, err := client.Update(t.Context(), c, pod, "", func(p *corev1.Pod) error {
		p.Finalizers = append(p.Finalizers, "example.com/late")
		return nil
	})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a finalizer added while deleting: %v", err)
	}
	if _, err := client.Update(t.Context(), c, pod, "", func(p *corev1.Pod) error {
		p.Finalizers = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if exists(t, c, pod) {
		t.Error("still there after its last finalizer went")
	}
}

func testPropagation(t *testing.T, c client.Client) {
	for policy, want := range map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
		metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
	} {
		cm := create(t, c, configMap("a", nil))
		out, err := c.Delete(t.Context(), client.RefOf(cm), metav1.DeleteOptions{PropagationPolicy: &policy})
		if err != nil || len(out.GetFinalizers()) != 1 || out.GetFinalizers()[0] != want {
			t.Errorf("%s: %v, %v", policy, out, err)
		}
		if _, err := client.Update(t.Context(), c, cm, "", func(cm *corev1.ConfigMap) error {
			cm.Finalizers = nil
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func testPreconditions(t *testing.T, c client.Client) {
	cm := create(t, c, configMap("a", nil))
	opts := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}
	if _, err := c.Delete(t.Context(), client.RefOf(cm), opts); !apierrors.IsConflict(err) {
		t.Errorf("wrong UID: %v", err)
	}
	opts.Preconditions = metav1.NewUIDPreconditions(string(cm.UID))
	if _, err := c.Delete(t.Context(), client.RefOf(cm), opts); err != nil {
		t.Errorf("right UID: %v", err)
	}
}

func testNamespace(t *testing.T, c client.Client) {
	ns := create(t, c,
		&corev1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: "going"}})
	if ns.Status.Phase != corev1.NamespaceActive || len(ns.Spec.Finalizers) != 1 {
		t.Errorf("new namespace: %+v %+v", ns.Spec, ns.Status)
	}
	out, err := c.Delete(t.Context(), client.RefOf(ns), metav1.DeleteOptions{})
	if err != nil || out.(*corev1.Namespace).Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("delete: %v, %v", out, err)
	}
	pod := Pod("late")
	pod.Namespace = "going"
	if _, err := c.Create(t.Context(), pod); !apierrors.IsForbidden(err) ||
		!apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("create in a terminating namespace: %v", err)
	}
	if _, err := client.Update(t.Context(), c, ns, "finalize", func(ns *corev1.Namespace) error {
		ns.Spec.Finalizers = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if exists(t, c, ns) {
		t.Error("still there after its last finalizer went")
	}
}

func testToken(t *testing.T, c client.Client) {
	account := create(t, c, &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{Kind: "ServiceAccount", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}})
	spec := authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}, ExpirationSeconds: new(int64(7200))}
	out, err := client.RequestToken(t.Context(), c, "default", account.Name, spec)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(out.Status.ExpirationTimestamp.Time); out.Status.Token == "" || left < time.Hour ||
		left > 2*time.Hour {
		t.Errorf("token %q for %v", out.Status.Token, left)
	}
	if len(out.Spec.Audiences) != 1 || out.Spec.Audiences[0] != "vault" || out.Name != "robot" {
		t.Errorf("request %+v", out)
	}
	spec.ExpirationSeconds = new(int64(1))
	if _, err := client.RequestToken(t.Context(), c, "default", account.Name, spec); !apierrors.IsInvalid(err) {
		t.Errorf("a token for a second: %v", err)
	}
	if _, err := client.RequestToken(t.Context(), c, "default", "none", spec); !apierrors.IsNotFound(err) {
		t.Errorf("a token without a user: %v", err)
	}
}
