package launch

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/client"
	"monopod/apiserver/process/guard"
	"monopod/testdata/harness"
)

// broken is a selector that panics in the registry, but not in the store, where a panic only ends the watch.
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
	configMaps := client.Selector{Resource: client.ConfigMaps, Labels: broken{labels.SelectorFromSet(labels.Set{"a": "b"})}}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Bound)
	defer cancel()
	changes, err := a.Registry.Watch(ctx, configMaps, strconv.FormatInt(a.Registry.Revision(), 10))
	if err != nil {
		t.Fatal(err)
	}
	made, err := a.Registry.Create(t.Context(), &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"},
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

// opened is an API over a file in a folder of its own.
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

// TestControllersKnowTheOrder: what the program gives its controllers knows the order of changes of all kinds, and
// needs no goroutine for each watch.
func TestControllersKnowTheOrder(t *testing.T) {
	t.Parallel()
	a, _ := opened(t)
	api := a.Whole(nil)
	if _, known := api.Newest(client.Pods); !known {
		t.Error("the newest change of pods is not known")
	}
	if _, ok := api.(client.Direct); !ok {
		t.Errorf("%T is not direct", api)
	}
}

// TestHealthReportsPanicsOfTheRegistry checks that the guard that Health asks is the one that the registry uses.
func TestHealthReportsPanicsOfTheRegistry(t *testing.T) {
	t.Parallel()
	a, metrics := opened(t)
	if err := a.Health(t.Context()); err != nil {
		t.Errorf("at the start: %v", err)
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
