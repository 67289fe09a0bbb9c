// Package server serves the kubelet's HTTP API: pods, usage, health, logs, configuration and streams, under upstream's
// paths, and the images. It does not authorize requests: the API server does that, for its proxy and for the node's
// port.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/images"
)

// Node is the node that the server represents.
type Node interface {
	client.Node
	// Pods returns the pods assigned to the node, which must not be modified.
	Pods() []*corev1.Pod
	// RunningPods returns the pods that the runtime runs. They only contain names and containers.
	RunningPods() []*corev1.Pod
	// Pod returns the newest pod with a name; false if there is none.
	Pod(name types.NamespacedName) (*corev1.Pod, bool)
	// RunInContainer runs a command until it ends and returns its output.
	RunInContainer(ctx context.Context, pod *corev1.Pod, container string, cmd []string) ([]byte, error)
	// SyncLoop returns nil while the node works.
	SyncLoop() error
}

// Config configures a server. All fields except Terminal and Debugging are required.
type Config struct {
	Node Node
	// Stats serves /stats/summary, /stats/history, /metrics/resource and /metrics/cadvisor.
	Stats http.Handler
	// Metrics are served at /metrics, Probes at /metrics/probes.
	Metrics, Probes prometheus.Gatherer
	// Images shows and changes the node's images at images.Path; only with Debugging.
	Images http.Handler
	// Configz returns the effective KubeletConfiguration.
	Configz func() any
	// LogDir is the folder that is served at /logs/.
	LogDir string
	// Terminal also serves shells on this machine at client.TerminalPath. The API server lets only admins through.
	Terminal bool
	// Debugging also serves logs, streams, commands and profiles (upstream: --enable-debugging-handlers).
	Debugging bool
}

type server struct{ Config }

// New returns the handler.
func New(cfg Config) http.Handler {
	s := &server{cfg}
	mux := http.NewServeMux()
	s.health(mux)
	mux.HandleFunc("GET /pods", s.pods)
	mux.HandleFunc("GET /pods/{$}", s.pods)
	for _, path := range []string{"/stats/summary", "/stats/history", "/metrics/resource", "/metrics/cadvisor"} {
		mux.Handle("GET "+path, limitConcurrent(s.Stats))
	}
	mux.Handle("GET /metrics", limitConcurrent(promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{})))
	mux.Handle("GET /metrics/probes", limitConcurrent(promhttp.HandlerFor(s.Probes, promhttp.HandlerOpts{})))
	if s.Terminal {
		mux.HandleFunc(client.TerminalPath, terminals())
	}
	if s.Debugging {
		s.streams(mux)
		mux.HandleFunc("GET /runningpods/", s.runningPods)
		mux.HandleFunc("GET /runningpods", s.runningPods)
		mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) {
			send(w, map[string]any{"kubeletconfig": s.Configz()}) // upstream's format
		})
		mux.Handle(images.Path, s.Images)
		mux.HandleFunc("GET /logs/", s.logs)
		mux.HandleFunc("GET /logs", func(w http.ResponseWriter, _ *http.Request) { // below any prefix of the proxy
			w.Header().Set("Location", "logs/")
			w.WriteHeader(http.StatusMovedPermanently)
		})
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	} else {
		for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/",
			"/debug/pprof/", "/logs/"} {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "Debug endpoints are disabled.", http.StatusMethodNotAllowed) // upstream's message
			})
		}
	}
	return mux
}

// maxScrapes limits the concurrent requests of one path for metrics or usage, because each response is computed anew.
const maxScrapes = 4

// limitConcurrent answers requests beyond maxScrapes with 503, as promhttp does.
func limitConcurrent(next http.Handler) http.Handler {
	inFlight := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case inFlight <- struct{}{}:
			defer func() { <-inFlight }()
			next.ServeHTTP(w, r)
		default:
			http.Error(w, fmt.Sprintf("Limit of concurrent requests reached (%d), try again later.", maxScrapes),
				http.StatusServiceUnavailable)
		}
	})
}

// health serves /healthz and its checks: ping and log always succeed, syncloop checks the node.
func (s *server) health(mux *http.ServeMux) {
	checks := []struct {
		name string
		ask  func() error
	}{{"ping", nil}, {"log", nil}, {"syncloop", s.Node.SyncLoop}}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		var report strings.Builder
		failed := false
		for _, c := range checks {
			if c.ask != nil {
				if err := c.ask(); err != nil {
					failed = true
					fmt.Fprintf(&report, "[-]%s failed: %v\n", c.name, err)
					continue
				}
			}
			fmt.Fprintf(&report, "[+]%s ok\n", c.name)
		}
		switch {
		case failed:
			http.Error(w, report.String()+"healthz check failed", http.StatusInternalServerError)
		case r.URL.Query().Has("verbose"):
			fmt.Fprintf(w, "%shealthz check passed\n", report.String())
		default:
			fmt.Fprint(w, "ok")
		}
	})
	for _, c := range checks {
		mux.HandleFunc("GET /healthz/"+c.name, func(w http.ResponseWriter, _ *http.Request) {
			if c.ask != nil {
				if err := c.ask(); err != nil {
					http.Error(w, "internal server error: "+err.Error(), http.StatusInternalServerError)
					return
				}
			}
			fmt.Fprint(w, "ok")
		})
	}
}

func (s *server) pods(w http.ResponseWriter, _ *http.Request) { sendPods(w, s.Node.Pods()) }

func (s *server) runningPods(w http.ResponseWriter, _ *http.Request) {
	sendPods(w, s.Node.RunningPods())
}

func sendPods(w http.ResponseWriter, pods []*corev1.Pod) {
	list := corev1.PodList{Items: []corev1.Pod{}}
	list.Kind, list.APIVersion = "PodList", "v1"
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	send(w, list)
}

func send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}

// fail responds with the error as plain text, like a kubelet.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if api := apierrors.APIStatus(nil); errors.As(err, &api) {
		code = int(api.Status().Code)
	}
	http.Error(w, err.Error(), code)
}
