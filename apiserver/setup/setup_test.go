package setup

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/metrics"
	"monopod/apiserver/registry/apiservice"
	"monopod/testdata/harness"
)

// broken is a selector that panics in the registry, but not in the store, in which a panic only ends the watch.
type broken struct{ labels.Selector }

func (broken) Matches(labels.Labels) bool {
	if bytes.Contains(debug.Stack(), []byte("registry.watchEvent(")) {
		panic("injected")
	}
	return true
}

// watch opens a watch that panics at the first change, and waits for its end.
func watch(t *testing.T, a *API) {
	t.Helper()
	configMaps := client.Selector{Resource: client.ConfigMaps,
		Labels: broken{labels.SelectorFromSet(labels.Set{"a": "b"})}}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Bound)
	defer cancel()
	changes, err := a.Registry.Watch(ctx, configMaps, strconv.FormatInt(a.Registry.Revision(), 10))
	if err != nil {
		t.Fatal(err)
	}
	made, err := a.Registry.Create(t.Context(), &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: "a", Labels: map[string]string{"a": "b"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(t.Context(), a.Registry, made.(*corev1.ConfigMap), "", func(c *corev1.ConfigMap) error {
		c.Data = map[string]string{"a": "b"}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for range changes {
	}
}

// opened returns an API whose store is a file in a temporary folder.
func opened(t *testing.T) (*API, *prometheus.Registry) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := Config{DataDir: dir, Node: "n", Log: zap.NewNop()}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	cfg.Flags(func(string) *pflag.FlagSet { return flags })
	cfg.Listen = "127.0.0.1:0"
	if err := cfg.Complete(dir); err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	a, err := Open(t.Context(), cfg, metrics)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a, metrics
}

// TestControllersKnowTheOrder: the client of the controllers knows the order of changes of all kinds.
func TestControllersKnowTheOrder(t *testing.T) {
	t.Parallel()
	a, _ := opened(t)
	api := a.Whole(nil)
	if _, known := api.Newest(client.Pods); !known {
		t.Error("Newest does not know the newest change of pods")
	}
}

// TestMetricsOfAnotherServer: controllers read metrics.k8s.io from the server of its APIService, if there is one, as
// clients do, and otherwise from this process.
func TestMetricsOfAnotherServer(t *testing.T) {
	t.Parallel()
	a, registry := opened(t)
	api := a.Whole(func(context.Context) ([]*metrics.NodeMetrics, []*metrics.PodMetrics, error) {
		return []*metrics.NodeMetrics{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}, nil, nil
	})
	ask := func(want string) {
		t.Helper()
		var got string
		for end := time.Now().Add(harness.Bound); got != want && time.Now().Before(end); time.Sleep(time.Millisecond) {
			objs, _, err := api.List(t.Context(), client.Selector{Resource: metrics.Nodes()})
			if got = fmt.Sprint(len(objs), " nodes"); err != nil {
				got = string(apierrors.ReasonForError(err))
			}
		}
		if got != want {
			t.Fatalf("metrics: %s, want %s", got, want)
		}
	}
	ask("1 nodes")
	m, err := follow.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- a.Aggregation(follow.Deps{Client: a.Registry, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: m}).Run(
			ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	service := &apiservice.Service{TypeMeta: metav1.TypeMeta{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"},
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io"}}
	service.Spec.Group, service.Spec.Version, service.Spec.GroupPriorityMinimum, service.Spec.VersionPriority = "metrics.k8s.io", "v1beta1", 100, 100
	service.Spec.InsecureSkipTLSVerify = true
	service.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server"}
	if _, err := a.Registry.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	ask("ServiceUnavailable") // there is no such Service
	ref := client.Ref{Resource: client.APIServices, Name: "v1beta1.metrics.k8s.io"}
	if _, err := a.Registry.Delete(t.Context(), ref, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ask("1 nodes")
}

// TestHealthReportsPanicsOfTheRegistry checks that Health reports the panics that the registry's guard has caught.
func TestHealthReportsPanicsOfTheRegistry(t *testing.T) {
	t.Parallel()
	a, metrics := opened(t)
	if err := a.Health(t.Context()); err != nil {
		t.Errorf("before a panic: %v", err)
	}
	watch(t, a)
	if err := a.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "watch configmaps: panic: injected") {
		t.Errorf("after a panic: %v", err)
	}
	panics, err := guard.Panics(metrics)
	if err != nil {
		t.Fatal(err)
	}
	var count dto.Metric
	if err := panics.WithLabelValues("watch").Write(&count); err != nil || count.Counter.GetValue() != 1 {
		t.Errorf("%v panics are counted, %v", count.Counter.GetValue(), err)
	}
}

func TestMaxState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked  int64
		memory uint64
		want   int64
	}{{0, 512 << 20, 64 << 20}, {0, 8 << 30, 512 << 20}, {0, 256 << 30, 2 << 30}, {5, 8 << 30, 5}, {-1, 8 << 30, 0}} {
		if got := maxState(c.asked, c.memory); got != c.want {
			t.Errorf("asked %d, memory %d: %d, want %d", c.asked, c.memory, got, c.want)
		}
	}
}
