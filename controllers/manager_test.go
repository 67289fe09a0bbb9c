package controllers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/registry"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEnabled(t *testing.T) {
	t.Parallel()
	all := []Entry{{Name: "a", Aliases: []string{"a-controller"}}, {Name: "b"}, {Name: "c", Off: true}}
	for list, want := range map[string]string{
		"*":                  "a b",
		"*,c":                "a b c",
		"*,-a":               "b",
		"-a,*":               "b",
		"b":                  "b",
		"a-controller,c":     "a c",
		"*,-a-controller":    "b",
		"-b":                 "",
		"b,-b":               "b",
		"-b,b,*":             "a",
		"*,x":                `error: --controllers: "x" is not in the list of known controllers: a, b, c`,
		"*,-x":               `error: --controllers: "x" is not in the list of known controllers: a, b, c`,
		"":                   `error: --controllers: "" is not in the list of known controllers: a, b, c`,
		"*,-a,-b":            "",
		"*,*":                "a b",
		"a,b,c,a-controller": "a b c",
	} {
		entries, err := enabled(all, strings.Split(list, ","))
		var got []string
		for _, e := range entries {
			got = append(got, e.Name)
		}
		if s := strings.Join(got, " "); (err == nil && s != want) || (err != nil && "error: "+err.Error() != want) {
			t.Errorf("%q: %q, %v; want %q", list, s, err, want)
		}
	}
	if cfg := (Config{Controllers: []string{"*", "-podgc"}}); !cfg.Off("podgc") || cfg.Off("replicaset") {
		t.Error("Off returns a wrong result")
	}
	if entries, err := enabled(all, nil); len(entries) != 2 || err != nil {
		t.Errorf("without a list: %v, %v, want the entries that are on by default", entries, err)
	}
}

// Each controller that registry.Resources names exists.
func TestControllersOfKinds(t *testing.T) {
	t.Parallel()
	for _, res := range registry.Resources() {
		if c := res.Controller; c != "" && res.Off == "" && !slices.Contains(names(All(&Config{})), c) {
			t.Errorf("%s: unknown controller %q", res.Kind, c)
		}
	}
}

// manage runs a manager until the test ends.
func manage(t *testing.T, api *apitest.API, cfg Config) *Manager {
	m, err := New(Deps{Client: api.Client, Metrics: api.Registry}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestAllTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		cfg := served()
		cfg.RootCA = []byte("-----BEGIN CERTIFICATE-----\n")
		m := manage(t, api, cfg)
		api.Create(apitest.Node("n"))
		api.Ready("n", corev1.ConditionTrue)
		rs := webSet(3)
		api.Create(rs)
		apitest.Settle(time.Second)
		for _, p := range apitest.List[*corev1.Pod](api, "default") {
			if p.Spec.NodeName != "n" {
				t.Errorf("pod %s is on %q", p.Name, p.Spec.NodeName)
			}
		}
		for _, ns := range apitest.List[*corev1.Namespace](api, "") {
			if _, ok := apitest.Get[*corev1.ServiceAccount](api, ns.Name, "default"); !ok {
				t.Errorf("namespace %s has no default service account", ns.Name)
			}
			if cm, ok := apitest.Get[*corev1.ConfigMap](api, ns.Name, "kube-root-ca.crt"); !ok || cm.Data["ca.crt"] == "" {
				t.Errorf("namespace %s has no root certificate", ns.Name)
			}
		}
		counts := map[string]int{}
		for _, e := range apitest.List[*corev1.Event](api, "default") {
			counts[e.Reason]++
		}
		if counts["SuccessfulCreate"] != 3 || counts["Scheduled"] != 3 {
			t.Errorf("events %v", counts)
		}
		for _, c := range m.Checks() {
			if err := c.Check(t.Context()); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
		if got := m.Configz().Controllers; !slices.Contains(got, "podgc") || len(got) != len(All(&Config{})) {
			t.Errorf("configz lists the controllers %v", got)
		}
		graph := httptest.NewRecorder()
		m.DebuggingHandlers()["garbagecollector"].ServeHTTP(graph, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := graph.Body.String(); strings.Count(got, `"pods default/web-`) != 3 {
			t.Errorf("graph of the garbage collector: %s", got)
		}
		shown, err := json.Marshal(m.Configz())
		if err != nil || !strings.Contains(string(shown), `"eventTTL":"1h0m0s"`) ||
			strings.Contains(string(shown), "CERTIFICATE") {
			t.Errorf("configz is %s, %v", shown, err)
		}
		api.Delete(webSet(0), metav1.DeletePropagationBackground)
		apitest.Settle(time.Minute)
		for _, p := range apitest.List[*corev1.Pod](api, "default") {
			if p.DeletionTimestamp == nil {
				t.Errorf("pod %s is not being deleted after the deletion of its ReplicaSet", p.Name)
			}
		}
	})
}

// A stopped manager writes nothing. After its next start it handles the changes that it missed.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Create(apitest.Node("n"))
		m, err := New(Deps{Client: api.Client, Metrics: api.Registry}, served())
		if err != nil {
			t.Fatal(err)
		}
		api.Create(webSet(1))
		for term := range 3 {
			api.Ready("n", corev1.ConditionTrue)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if err := m.Run(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			if pods := apitest.List[*corev1.Pod](api, "default"); len(pods) != term+1 || pods[term].Spec.NodeName != "n" {
				t.Errorf("term %d: %d pods", term, len(pods))
			}
			apitest.Change(api, webSet(0), "", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = new(int32(term + 2)) })
			apitest.Settle(time.Minute)
			if pods := apitest.List[*corev1.Pod](api, "default"); len(pods) != term+1 {
				t.Errorf("after term %d: %d pods", term, len(pods))
			}
		}
		if got := len(apitest.List[*corev1.Event](api, "default")); got < 6 {
			t.Errorf("%d Events, want at least 6", got)
		}
	})
}

func webSet(n int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}}},
	}
}

func TestAnIdleDayWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		cfg := served()
		cfg.NodeMonitorGracePeriod.Duration = 1000 * time.Hour // the test does not renew the lease
		manage(t, api, cfg)
		api.Create(apitest.Node("n"))
		api.Ready("n", corev1.ConditionTrue)
		api.Create(webSet(10))
		apitest.Settle(2 * time.Hour) // until the Events have expired
		before := api.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if after := api.Store.Revision(); after != before {
			t.Errorf("%d writes", after-before)
		}
	})
}

func TestDisabledControllersDoNotRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		cfg := served()
		cfg.Controllers = []string{"*", "-replicaset"}
		m := manage(t, api, cfg)
		api.Create(webSet(3))
		apitest.Settle(time.Minute)
		if n := len(apitest.List[*corev1.Pod](api, "default")); n != 0 {
			t.Errorf("%d pods", n)
		}
		if slices.ContainsFunc(m.Checks(), func(c Check) bool { return c.Name == "replicaset" }) {
			t.Error("a disabled controller has a health check")
		}
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	if _, err := New(Deps{}, served()); err == nil {
		t.Error("New without a client succeeded")
	}
}

// served is the default configuration with all served kinds.
func served() Config {
	cfg := Default()
	cfg.Kinds = apitest.Kinds()
	return cfg
}
