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

var update = flag.Bool("update", false, "write docs/metrics.md and docs/metrics-node.md")

// metricsPage is a generated page: its file, the text at its head, and the headings with the paths of the metrics.
type metricsPage struct {
	file, head string
	paths      [][2]string
}

const (
	apiMetricsHead = `# Metrics of the API server

For those who write alerts and dashboards: what ` + "`/metrics`" + ` of the API server shows.
[metrics-node.md](metrics-node.md) lists the metrics of the node, and [monitoring.md](monitoring.md#metrics) explains
those that upstream does not have.

The list is generated from a running Monopod with the fake runtime. It lacks metrics that appear only after an event (a
panic, an eviction) which the run did not cause, and ` + "`go_*` and `process_*`" + `, which every program with Prometheus'
client for Go has.

These metrics of upstream's ` + "`apiserver_flowcontrol_*`" + ` have no meaning here:

| not served | because |
|---|---|
| ` + "`current_r`, `dispatch_r`, `latest_s`, `epoch_advance_total`" + ` | queues take turns; there is no virtual time |
| ` + "`next_s_bounds`, `next_discounted_s_bounds`" + ` | the same |
| ` + "`work_estimated_seats`, `watch_count_samples`" + ` | a request always takes one seat |
| ` + "`demand_seats_*` (high_watermark, average, stdev, smoothed)" + ` | levels borrow seats at once, not every 10 seconds |
| ` + "`target_seats`, `seat_fair_frac`" + ` | the same |
| ` + "`priority_level_request_utilization`" + ` | it measures a limit that priority and fairness replaces |
| ` + "`read_vs_write_current_requests`" + ` | the same |
`

	nodeMetricsHead = `# Metrics of the node

For those who write alerts and dashboards: what the metrics paths of [the kubelet's API](kubelet-api.md) show.
[metrics.md](metrics.md) lists the metrics of the API server and says how both lists are made.
`
)

var metricsPages = []metricsPage{
	{"../../docs/metrics.md", apiMetricsHead, [][2]string{
		{"The API server: `/metrics`", "/metrics"},
	}},
	{"../../docs/metrics-node.md", nodeMetricsHead, [][2]string{
		{"The node: `metrics`", "/api/v1/nodes/node1/proxy/metrics"},
		{"The node: `metrics/cadvisor`", "/api/v1/nodes/node1/proxy/metrics/cadvisor"},
		{"The node: `metrics/resource`", "/api/v1/nodes/node1/proxy/metrics/resource"},
		{"The node: `metrics/probes`", "/api/v1/nodes/node1/proxy/metrics/probes"},
	}},
}

// family matches the two lines that introduce a metric.
var family = regexp.MustCompile(`(?m)^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)$`)

// TestMetricsPage compares the pages of metrics with the metrics of a server that has run a few pods. -update adds
// missing rows.
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

	for _, page := range metricsPages {
		page.check(t, s)
	}
}

// check compares the page with the metrics of the server, or adds them to the page.
func (p metricsPage) check(t *testing.T, s *harness.Server) {
	text, err := os.ReadFile(p.file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	page := sections(string(text))
	for _, path := range p.paths {
		code, metrics := s.Get(path[1])
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", path[1], code, metrics)
		}
		rows := page[path[0]]
		if rows == nil {
			rows = map[string]string{}
			page[path[0]] = rows
		}
		for _, m := range family.FindAllStringSubmatch(metrics, -1) {
			if strings.HasPrefix(m[1], "go_") || strings.HasPrefix(m[1], "process_") {
				continue // a metric of Prometheus' client
			}
			row := fmt.Sprintf("| `%s` | %s | %s |", m[1], m[3], strings.ReplaceAll(m[2], "|", `\|`))
			if rows[m[1]] != row && !*update {
				t.Errorf("%s, %s: the row of %s is missing or not up to date: go test ./testdata/script -run MetricsPage -update",
					p.file, path[0], m[1])
			}
			rows[m[1]] = row
		}
	}
	if *update {
		if err := os.WriteFile(p.file, []byte(p.written(page)), 0o644); err != nil {
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

// written returns the text of the page with these rows.
func (p metricsPage) written(page map[string]map[string]string) string {
	var w strings.Builder
	w.WriteString(p.head)
	for _, path := range p.paths {
		fmt.Fprintf(&w, "\n## %s\n\n| metric | type | |\n|---|---|---|\n", path[0])
		for _, name := range slices.Sorted(maps.Keys(page[path[0]])) {
			w.WriteString(page[path[0]][name] + "\n")
		}
	}
	return w.String()
}
