package shutdown_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/node/shutdown"
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
	stages := p.Stages([]*corev1.Pod{pod("vital", 60), pod("a", 60), pod("b", 5), pod("c", -5)}, critical)
	var got []string
	for _, s := range stages {
		for _, pod := range s.Pods {
			got = append(got, pod.Name+" "+s.Grace(pod).String())
		}
		got = append(got, "then")
	}
	if all := strings.Join(got, ", "); all != "a 20s, b 5s, c 1s, then, vital 10s, then" {
		t.Error("stages: ", all)
	}
	if stages := p.Stages(nil, critical); len(stages) != 0 {
		t.Errorf("stages without pods: %v", stages)
	}
}

func TestStagesByPriority(t *testing.T) {
	t.Parallel()
	pod := func(priority int32) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{Priority: &priority}} }
	p := shutdown.Periods{ByPriority: shutdown.Shares{{Priority: 1000, Time: 3 * time.Second},
		{Priority: 10, Time: time.Second}, {Priority: 100, Time: 2 * time.Second}}}
	vital := func(p *corev1.Pod) bool { return *p.Spec.Priority == 9 }
	var got []string
	for _, s := range p.Stages([]*corev1.Pod{pod(5000), pod(9), pod(10), pod(0), pod(1000), pod(-5)}, vital) {
		for _, pod := range s.Pods {
			got = append(got, fmt.Sprint(*pod.Spec.Priority))
		}
		got = append(got, s.Time.String())
	}
	if all := strings.Join(got, " "); all != "10 0 -5 1s 5000 9 1000 3s" {
		t.Error("stages: ", all)
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for limit, want := range map[time.Duration]string{
		time.Minute:      "[]", // unchanged
		32 * time.Second: "[]",
		17 * time.Second: "[{0 10s} {2000000000 5s}]",
		time.Second:      "[{0 0s} {2000000000 0s}]",
	} {
		if got := shutdown.Default().Within(limit); fmt.Sprint([]shutdown.Share(got.ByPriority)) != want {
			t.Errorf("%v: %v", limit, got.ByPriority)
		}
	}
	none := shutdown.Default().Within(0)
	if got, want := fmt.Sprint(none.Within(0)), fmt.Sprint(none); got != want {
		t.Errorf("a second limit of 0: %v, want %v", got, want)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                            "off",
		"--shutdown-grace-period=30s": "30s",
		"--shutdown-grace-period=30s --shutdown-grace-period-critical-pods=10s":   "30s",
		"--shutdown-grace-period-by-pod-priority=0=20s,1000=10s":                  "30s",
		"--shutdown-grace-period=999ms":                                           "--shutdown-grace-period: 999ms is less than a second",
		"--shutdown-grace-period-critical-pods=1s":                                "--shutdown-grace-period: 0s is less than a second",
		"--shutdown-grace-period=1m --shutdown-grace-period-critical-pods=1h":     "--shutdown-grace-period-critical-pods: 1h0m0s is more than the 1m0s of --shutdown-grace-period",
		"--shutdown-grace-period=1m --shutdown-grace-period-critical-pods=-1ns":   "--shutdown-grace-period-critical-pods: -1ns is below 0",
		"--shutdown-grace-period=1m --shutdown-grace-period-by-pod-priority=0=1s": "--shutdown-grace-period-by-pod-priority: cannot be combined with",
		"--shutdown-grace-period-by-pod-priority=0=1s,0=2s":                       "--shutdown-grace-period-by-pod-priority: priority 0 is given twice",
		"--shutdown-grace-period-by-pod-priority=0=-1s,1=3s":                      "--shutdown-grace-period-by-pod-priority: -1s of priority 0 is below 0",
		"--shutdown-grace-period-by-pod-priority=0=0s":                            "--shutdown-grace-period-by-pod-priority: 0s in total is less than a second",
		"--shutdown-grace-period-by-pod-priority=x=1s": `invalid argument "x=1s" for ` +
			`"--shutdown-grace-period-by-pod-priority" flag: "x" is not a priority (an integer)`,
		"--shutdown-grace-period-by-pod-priority=99999999999=1s": `invalid argument "99999999999=1s" for ` +
			`"--shutdown-grace-period-by-pod-priority" flag: "99999999999" is not a priority (an integer)`,
		"--shutdown-grace-period-by-pod-priority=7": `invalid argument "7" for ` +
			`"--shutdown-grace-period-by-pod-priority" flag: priority 7: "" is not a duration such as 20s`,
	} {
		var p shutdown.Periods
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		p.Flags(f)
		err := f.Parse(strings.Fields(args))
		if err == nil {
			err = p.CheckServe()
		}
		got := p.Bound().String()
		switch {
		case err != nil:
			got = err.Error()
		case p.Off():
			got = "off"
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", args, got)
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
		{http.MethodPost, "", n, 400, "the body is not JSON"},
		{http.MethodPost, `{"shutdownGracePeriod":5}`, n, 400, "--shutdown-grace-period: 5ns"},
		{http.MethodPost, `{"shutdownGracePeriod":5000000000}`, n, 200, `{"done":true`},
	} {
		w := httptest.NewRecorder()
		shutdown.Handler(func() shutdown.Node { return tc.node }).
			ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tc.method, "/", strings.NewReader(tc.body)))
		if w.Code != tc.code || !strings.HasPrefix(w.Body.String(), tc.answer) {
			t.Errorf("%s %s: %d %s", tc.method, tc.body, w.Code, w.Body)
		}
	}
	if len(n.asked) != 1 || n.asked[0].Total != 5*time.Second {
		t.Errorf("shutdowns requested: %v, want one of 5s", n.asked)
	}
}
