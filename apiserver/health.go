package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/version"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/codec"
)

// Check is one named part of the server's health. Ready and Live say which of
// /readyz and /livez ask it; /healthz asks all.
type Check struct {
	Name        string
	Ready, Live bool
	Ask         func(ctx context.Context) error
}

// health answers /healthz, /livez and /readyz: "ok", or each check's outcome when
// one fails or ?verbose is set. ?exclude=NAME leaves one out. Why a check failed
// is for known users alone.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	kind := strings.Split(r.URL.Path, "/")[1]
	only := chi.URLParam(r, "check")
	exclude := r.URL.Query()["exclude"]
	var report strings.Builder
	failed, asked := 0, 0
	_, known := auth.Known(r.Context())
	for _, c := range s.Checks {
		if (only != "" && c.Name != only) || (only == "" && !c.partOf(kind)) || slices.Contains(exclude, c.Name) {
			continue
		}
		asked++
		if err := c.Ask(r.Context()); err != nil {
			failed++
			s.Log.Warn("health check failed", zap.String("check", c.Name), zap.Error(err))
			if !known {
				err = errWithheld
			}
			fmt.Fprintf(&report, "[-]%s failed: %v\n", c.Name, err)
		} else {
			fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
		}
	}
	s.reportHealth(w, r, kind, report.String(), failed, only != "" && asked == 0)
}

// Ready is nil when /readyz is ok.
func (s *Server) Ready(ctx context.Context) error {
	for _, c := range s.Checks {
		if c.Ready {
			if err := c.Ask(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
	}
	return nil
}

var errWithheld = errors.New("reason withheld")

func (s *Server) reportHealth(w http.ResponseWriter, r *http.Request, kind, report string, failed int, unknown bool) {
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

func (c Check) partOf(kind string) bool {
	switch kind {
	case "readyz":
		return c.Ready
	case "livez":
		return c.Live
	}
	return true
}

// Version is the Kubernetes whose API this is.
var Version = version.Info{
	Major: "1", Minor: "37", GitVersion: "v1.37.2+monopod", GitTreeState: "clean",
	GoVersion: runtime.Version(), Compiler: runtime.Compiler,
	Platform: runtime.GOOS + "/" + runtime.GOARCH,
}

func (s *Server) version(w http.ResponseWriter, r *http.Request) {
	s.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(Version))
}

func (s *Server) configz(w http.ResponseWriter, r *http.Request) {
	s.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(s.Configz))
}

func (s *Server) debug(w http.ResponseWriter, r *http.Request) {
	if s.Debug != nil {
		if h := s.Debug(chi.URLParam(r, "name")); h != nil {
			h.ServeHTTP(w, r)
			return
		}
	}
	s.notFound(w, r)
}
