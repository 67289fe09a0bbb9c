package script_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"monopod/testdata/harness"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const metricsPage = "../../docs/metrics.md"

const metricsHead = `# Metrics

What ` + "`/metrics`" + ` of the API server and the paths of a kubelet show, generated from a running Monopod with the fake runtime. A metric that
appears only when something has happened (a panic, an eviction) is missing here until the run has caused it; those that upstream does not have are explained in
[monitoring.md](monitoring.md#health-metrics-configuration). [alerts.yaml](alerts.yaml) has rules for Prometheus and [dashboard.json](dashboard.json) a dashboard for
Grafana. Not listed: ` + "`go_*` and `process_*`" + `, those of every program with Prometheus' client for Go.

Of upstream's ` + "`apiserver_flowcontrol_*`" + ` these have no meaning here: ` + "`current_r`, `dispatch_r`, `latest_s`, `next_s_bounds`, `next_discounted_s_bounds` and\n`epoch_advance_total`" + ` (there
is no virtual time: queues take turns), ` + "`work_estimated_seats` and `watch_count_samples`" + ` (a request takes one seat, which is not an estimate),
` + "`demand_seats_high_watermark`, `demand_seats_average`, `demand_seats_stdev`, `demand_seats_smoothed`, `target_seats` and `seat_fair_frac`" + ` (seats are lent at once and not
adjusted every 10 seconds), ` + "`priority_level_request_utilization` and `read_vs_write_current_requests`" + ` (their limits belong to flags that are not used with priority and fairness).
`

// paths are where metrics are served, with the page's headings.
var paths = [][2]string{
	{"The API server: `/metrics`", "/metrics"},
	{"The node: `metrics`", "/api/v1/nodes/node1/proxy/metrics"},
	{"The node: `metrics/cadvisor`", "/api/v1/nodes/node1/proxy/metrics/cadvisor"},
	{"The node: `metrics/resource`", "/api/v1/nodes/node1/proxy/metrics/resource"},
	{"The node: `metrics/probes`", "/api/v1/nodes/node1/proxy/metrics/probes"},
}

// family matches the two lines that introduce a metric.
var family = regexp.MustCompile(`(?m)^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)$`)

// TestMetricsPage compares docs/metrics.md with the metrics of a server that has run a few pods; -update adds what is
// missing.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	b := buildAll(t)
	dir, err := b.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	s := harness.NewServer(b.Monopod(harness.Plain), dir, "--node-name=node1", "--runtime=fake",
		"--eviction-hard=memory.available<100Mi")
	t.Cleanup(func() {
		s.CleanUp(false)
		os.RemoveAll(dir)
	})
	s.Start()
	if err := s.Ready(); err != nil {
		s.End(syscall.SIGKILL)
		t.Fatalf("%v\n%s", err, s.Log)
	}
	kubectl := func(args ...string) {
		cmd := exec.Command(b.Path("kubectl"), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+dir+"/admin.kubeconfig", uncollected)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	kubectl("apply", "-f", "../web.yaml")
	kubectl("rollout", "status", "deployment/web")
	kubectl("create", "job", "once", "--image=monopod.local/web:1", "--", "exit", "0")
	kubectl("wait", "--for=condition=Complete", "job/once", "--timeout=10m")
	kubectl("expose", "deployment", "web", "--port=80")

	text, err := os.ReadFile(metricsPage)
	if err != nil && !*update {
		t.Fatal(err)
	}
	page := sections(string(text))
	for _, p := range paths {
		code, metrics := s.Get(p[1])
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", p[1], code, metrics)
		}
		rows := page[p[0]]
		if rows == nil {
			rows = map[string]string{}
			page[p[0]] = rows
		}
		for _, m := range family.FindAllStringSubmatch(metrics, -1) {
			if strings.HasPrefix(m[1], "go_") || strings.HasPrefix(m[1], "process_") {
				continue // of Prometheus' client
			}
			row := fmt.Sprintf("| `%s` | %s | %s |", m[1], m[3], strings.ReplaceAll(m[2], "|", `\|`))
			if rows[m[1]] != row && !*update {
				t.Errorf("%s, %s: the row of %s is missing or not up to date: go test ./testdata/script -run MetricsPage -update",
					metricsPage, p[0], m[1])
			}
			rows[m[1]] = row
		}
	}
	if *update {
		if err := os.WriteFile(metricsPage, []byte(written(page)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sections returns the rows of the page, by heading and metric.
func sections(page string) map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, part := range strings.Split(page, "\n## ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		rows := map[string]string{}
		for line := range strings.Lines(body) {
			if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`"); ok && strings.HasPrefix(line, "| `") {
				rows[name] = strings.TrimSpace(line)
			}
		}
		out[heading] = rows
	}
	return out
}

func written(page map[string]map[string]string) string {
	var w strings.Builder
	w.WriteString(metricsHead)
	for _, p := range paths {
		fmt.Fprintf(&w, "\n## %s\n\n| metric | type | |\n|---|---|---|\n", p[0])
		for _, name := range slices.Sorted(maps.Keys(page[p[0]])) {
			w.WriteString(page[p[0]][name] + "\n")
		}
	}
	return w.String()
}
