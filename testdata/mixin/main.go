// Command mixin evaluates the dashboards of kubernetes-mixin for a running Monopod, and fails if a panel is empty
// without a known reason.
//
// It scrapes the API server and the node's port twice, the latter with a service account token as Prometheus does, and
// sets the timestamps of the samples half a minute apart. Then it evaluates the recording rules and the panels'
// expressions with Prometheus' engine. It derives the series of kube-state-metrics and node-exporter, which are
// separate programs, from the objects of the API and from /proc.
//
//	mixin TOKEN-FILE DOCS      with kubectl in PATH and KUBECONFIG set
//
// DOCS contains alerts.yaml, whose alerts must not fire, and dashboard.json, whose panels must not be empty.
package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mixin TOKEN-FILE DOCS")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// interval is the time between the timestamps of the two scrapes.
const interval = 30 * time.Second

func run(ctx context.Context, tokenFile, docs string) error {
	ours, err := dashboard(filepath.Join(docs, "dashboard.json"))
	if err != nil {
		return err
	}
	c, err := newCluster(ctx, tokenFile)
	if err != nil {
		return err
	}
	db := &memory{}
	now := time.Now()
	if err := c.work(ctx); err != nil { // before the first scrape, because a new counter has no rate
		return err
	}
	if err := c.scrape(ctx, db, now.Add(-interval)); err != nil {
		return err
	}
	if err := c.work(ctx); err != nil {
		return err
	}
	if err := c.scrape(ctx, db, now); err != nil {
		return err
	}
	q := &querier{db: db, now: now, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		Parser: parser.NewParser(parser.Options{}),
	})}
	for _, r := range rules {
		v, err := q.ask(ctx, r.expr)
		if err != nil {
			return fmt.Errorf("rule %s: %w", r.record, err)
		}
		for _, s := range v {
			b := labels.NewBuilder(s.Metric)
			b.Set(labels.MetricName, r.record)
			for name, value := range r.labels {
				b.Set(name, value)
			}
			db.add(b.Labels(), now, s.F)
		}
	}
	shown, empty := 0, []string{}
	boards := append(boards, ours)
	for _, b := range boards {
		for _, p := range b.panels {
			v, err := q.ask(ctx, p.expr)
			if err != nil {
				return fmt.Errorf("%s / %s: %w", b.name, p.name, err)
			}
			switch {
			case has(v):
				shown++
			case p.quiet != "":
				fmt.Printf("left out: %s / %s: %s\n", b.name, p.name, p.quiet)
			default:
				empty = append(empty, fmt.Sprintf("%s / %s: %s", b.name, p.name, p.expr))
			}
		}
	}
	if len(empty) > 0 {
		return fmt.Errorf("%d panels are empty:\n%s", len(empty), strings.Join(empty, "\n"))
	}
	alerts, err := q.checkAlerts(ctx, filepath.Join(docs, "alerts.yaml"))
	if err != nil {
		return err
	}
	fmt.Printf("none of %d alerts fires\n", alerts)
	fmt.Printf("%d panels of %d dashboards show something, of %d series\n", shown, len(boards), db.len())
	return nil
}

// has reports whether a result has a value other than NaN.
func has(v promql.Vector) bool {
	for _, s := range v {
		if !math.IsNaN(s.F) {
			return true
		}
	}
	return false
}

type querier struct {
	db     *memory
	now    time.Time
	engine *promql.Engine
}

func (q *querier) ask(ctx context.Context, expr string) (promql.Vector, error) {
	expr = strings.NewReplacer("$__rate_interval", "2m", "$cluster", "", "$namespace", "default", "$node", "node1",
		"$instance", ".*", "$pod", "web-.*", "$type", ".*", "$workload", "web").Replace(expr)
	query, err := q.engine.NewInstantQuery(ctx, q.db, promql.NewPrometheusQueryOpts(false, 0, nil), expr, q.now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	defer query.Close()
	res := query.Exec(ctx)
	if res.Err != nil {
		return nil, fmt.Errorf("%s: %w", expr, res.Err)
	}
	if s, err := res.Scalar(); err == nil {
		return promql.Vector{{T: s.T, F: s.V}}, nil
	}
	return res.Vector()
}
