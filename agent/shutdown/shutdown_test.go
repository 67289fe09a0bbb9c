package shutdown_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/shutdown"
)

func TestStages(t *testing.T) {
	t.Parallel()
	pod := func(name string, grace int64) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.Spec.TerminationGracePeriodSeconds = name, &grace
		return p
	}
	critical := func(p *corev1.Pod) bool { return strings.HasPrefix(p.Name, "vital") }
	p := shutdown.Periods{Total: 30 * time.Second, Critical: 10 * time.Second}
	stages := p.Stages([]*corev1.Pod{pod("vital", 60), pod("a", 60), pod("b", 5)}, critical)
	var got []string
	for _, s := range stages {
		for _, pod := range s.Pods {
			got = append(got, pod.Name+" "+s.Grace(pod).String())
		}
		got = append(got, "then")
	}
	if all := strings.Join(got, ", "); all != "a 20s, b 5s, then, vital 10s, then" {
		t.Error(all)
	}
	if stages := p.Stages(nil, critical); len(stages) != 0 {
		t.Errorf("nobody to end: %v", stages)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for p, want := range map[shutdown.Periods]string{
		shutdown.Default():                          "",
		{Total: time.Second, Critical: time.Second}: "",
		{}: "--shutdown-grace-period: ",
		{Total: time.Minute, Critical: time.Hour}: "--shutdown-grace-period-critical-pods: 1h0m0s is more than",
		{Total: time.Minute, Critical: -1}:        "--shutdown-grace-period-critical-pods: -1ns is below 0",
	} {
		err := p.Check()
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

type node struct{ asked []shutdown.Periods }

func (n *node) Shutdown(p shutdown.Periods) { n.asked = append(n.asked, p) }
func (n *node) Progress() *shutdown.Progress {
	return &shutdown.Progress{Done: true, Running: []string{"a/b"}}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	n := &node{}
	for _, tc := range []struct {
		method, body string
		node         shutdown.Node
		code         int
		answer       string
	}{
		{http.MethodGet, "", nil, 503, "the node is still starting\n"},
		{http.MethodGet, "", n, 200, `{"done":true,"running":["a/b"]}` + "\n"},
		{http.MethodPost, "", n, 400, "the body is no JSON"},
		{http.MethodPost, `{"shutdownGracePeriod":5}`, n, 400, "--shutdown-grace-period: 5ns"},
		{http.MethodPost, `{"shutdownGracePeriod":5000000000}`, n, 200, `{"done":true`},
	} {
		w := httptest.NewRecorder()
		shutdown.Handler(func() shutdown.Node { return tc.node }).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tc.method, "/", strings.NewReader(tc.body)))
		if w.Code != tc.code || !strings.HasPrefix(w.Body.String(), tc.answer) {
			t.Errorf("%s %s: %d %s", tc.method, tc.body, w.Code, w.Body)
		}
	}
	if len(n.asked) != 1 || n.asked[0].Total != 5*time.Second {
		t.Errorf("asked for %v", n.asked)
	}
}
