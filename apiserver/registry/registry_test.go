package registry_test

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/access/token"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/client/clienttest"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a bootstrapped registry over a store in memory.
func open(t *testing.T) *registry.Registry {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() {
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	tokens := token.New(token.Config{KeyFile: filepath.Join(t.TempDir(), "sa.key")})
	r := registry.New(s, resources, registry.Config{Tokens: tokens.Issue})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestClient(t *testing.T) {
	clienttest.Run(t, func(t *testing.T) client.Client { return open(t) })
}

func TestDryRunStoresNothing(t *testing.T) {
	t.Parallel()
	r := open(t)
	before := r.Revision()
	ctx := registry.DryRun(t.Context())
	pod, err := r.Create(ctx, clienttest.Pod("a"))
	if err != nil || pod.GetUID() == "" {
		t.Fatalf("create: %v, %v", pod, err)
	}
	if r.Revision() != before {
		t.Error("a dry run was stored")
	}
	if _, err := r.Create(ctx, clienttest.Pod("Bad_Name")); err == nil {
		t.Error("a dry run did not validate")
	}
}

// A panic in a watch ends the watch with an error, not the process.
func TestPanicInWatch(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	var events schema.GroupVersionResource
	for i := range resources {
		if v := resources[i].View; v != nil && resources[i].Kind == "Event" {
			bad := *v
			bad.Show = func(registry.Object) registry.Object { panic("boom") }
			resources[i].View, events = &bad, resources[i].GVR
		}
	}
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	metrics := prometheus.NewRegistry()
	panics, err := guard.New(zap.NewNop(), clock.RealClock{}, metrics)
	if err != nil {
		t.Fatal(err)
	}
	r := registry.New(s, resources, registry.Config{Guard: panics})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes, err := r.Watch(t.Context(), client.Selector{Resource: events}, strconv.FormatInt(r.Revision(), 10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(t.Context(), &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: "a"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"},
	}); err != nil {
		t.Fatal(err)
	}
	if ev, ok := <-changes; !ok || ev.Type != watch.Error || !apierrors.IsInternalError(apierrors.FromObject(ev.Object)) {
		t.Errorf("got %+v, %v", ev, ok)
	}
	if ev, ok := <-changes; ok {
		t.Errorf("the watch continues with %+v", ev)
	}
	families, err := metrics.Gather()
	if err != nil || len(families) != 1 || families[0].Metric[0].Counter.GetValue() != 1 ||
		families[0].Metric[0].Label[0].GetValue() != "watch" {
		t.Errorf("metrics: %v, %v", families, err)
	}
}

// The registry stores times in the precision that clients see, so an update with the same times changes nothing.
func TestTimesOfOurOwnWriters(t *testing.T) {
	t.Parallel()
	r := open(t)
	made, err := r.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"},
		Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "a", Image: "a"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	at := metav1.NewTime(time.Date(2026, 11, 26, 1, 2, 3, 456, time.UTC))
	job, err := client.Update(t.Context(), r, made.(*batchv1.Job), "status",
		func(j *batchv1.Job) error { j.Status.StartTime = &at; return nil })
	if err != nil || !job.Status.StartTime.Equal(new(at.Rfc3339Copy())) {
		t.Fatalf("%v, started %v", err, job.Status.StartTime)
	}
	if _, err := client.Update(t.Context(), r, job, "status",
		func(j *batchv1.Job) error { j.Status.StartTime = new(at.Rfc3339Copy()); return nil }); err != nil {
		t.Error(err)
	}
}
