// Package health runs the checks of /healthz, /livez and /readyz, and counts their results.
package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Check is a named health check. Ready and Live set whether /readyz and /livez include it; /healthz includes
// all.
type Check struct {
	Name        string
	Ready, Live bool
	// Degrades is set if the server works while the check fails. /readyz?verbose shows the failure, but does not fail.
	Degrades bool
	Ask      func(ctx context.Context) error
}

// Notice is the error of a check that must not fail anything: the server works as configured, without a part that
// somebody may miss.
type Notice struct{ Text string }

// Error implements error.
func (n Notice) Error() string { return n.Text }

// Health contains the checks. Use New.
type Health struct {
	checks  []Check // in the order in which they run
	trusted func(ctx context.Context) bool
	log     *zap.Logger
	slis    *prometheus.Registry // for /metrics/slis
	healthy *prometheus.GaugeVec
	results *prometheus.CounterVec
}

// New returns the checks, with upstream's metrics of their results (component-base/metrics/prometheus/slis). Only
// requests whose context is trusted see why a check failed.
func New(checks []Check, trusted func(ctx context.Context) bool, log *zap.Logger) *Health {
	h := &Health{checks: checks, trusted: trusted, log: log, slis: prometheus.NewRegistry(),
		healthy: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "kubernetes", Name: "healthcheck", Help: "Result of the last run of each health check: 1 for success.",
		}, []string{"name", "type"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kubernetes", Name: "healthchecks_total", Help: "Number of results of each health check.",
		}, []string{"name", "type", "status"}),
	}
	h.slis.MustRegister(h.healthy, h.results)
	return h
}

// SLIs returns the metrics of the results.
func (h *Health) SLIs() prometheus.Gatherer { return h.slis }

// Serve serves /healthz, /livez and /readyz: "ok", or the result of each check if one fails or ?verbose is set.
// ?exclude=NAME omits a check.
func (h *Health) Serve(w http.ResponseWriter, r *http.Request) {
	kind := strings.Split(r.URL.Path, "/")[1]
	only := chi.URLParam(r, "check")
	_, verbose := r.URL.Query()["verbose"]
	exclude := r.URL.Query()["exclude"]
	var report strings.Builder
	failed, asked := 0, 0
	trusted := h.trusted(r.Context())
	for _, c := range h.checks {
		if (only != "" && c.Name != only) || (only == "" && !c.partOf(kind, verbose)) || slices.Contains(exclude, c.Name) {
			continue
		}
		asked++
		err := c.Ask(r.Context())
		status, value := "success", 1.0
		if err != nil {
			status, value = "error", 0
		}
		h.healthy.WithLabelValues(c.Name, kind).Set(value)
		h.results.WithLabelValues(c.Name, kind, status).Inc()
		if err != nil {
			failed++
			h.log.Warn("health check failed", zap.String("check", c.Name), zap.Error(err))
			if !trusted {
				err = errWithheld
			}
			if notice := (Notice{}); only == "" && (kind == readyz && !c.Ready || errors.As(err, &notice)) {
				failed--
				fmt.Fprintf(&report, "[!]%s degraded: %v\n", c.Name, err)
				continue
			}
			fmt.Fprintf(&report, "[-]%s failed: %v\n", c.Name, err)
		} else {
			fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
		}
	}
	h.report(w, r, kind, report.String(), failed, only != "" && asked == 0)
}

// Ready returns nil if /readyz is ok.
func (h *Health) Ready(ctx context.Context) error {
	for _, c := range h.checks {
		if c.Ready {
			if err := c.Ask(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
	}
	return nil
}

var errWithheld = errors.New("reason withheld")

func (h *Health) report(w http.ResponseWriter, r *http.Request, kind, report string, failed int, unknown bool) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case unknown:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintln(w, "no such check")
	case failed > 0:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", report, kind)
	case verbose:
		fmt.Fprintf(w, "%s%s check passed\n", report, kind)
	default:
		fmt.Fprint(w, "ok")
	}
}

const readyz = "readyz"

func (c Check) partOf(kind string, verbose bool) bool {
	switch kind {
	case readyz:
		return c.Ready || c.Degrades && verbose
	case "livez":
		return c.Live
	}
	return true
}
