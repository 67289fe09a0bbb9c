// Package shutdown implements graceful node shutdown: pods that are not critical end first, then the critical ones, all
// within a time limit.
//
//   - Periods: the time limits.
//   - Stage: the pods that end together.
//   - Progress: the progress that Handler reports.
package shutdown

import (
	"encoding/json"
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/status"
)

// Path is where a running monopod accepts shutdown requests (POST with Periods) and reports progress (GET).
const Path = "/monopod/shutdown"

// Reasons and messages of terminated pods, and of rejected ones (upstream's).
const (
	reason      = "Terminated"
	message     = "Pod was terminated in response to imminent node shutdown."
	Refused     = "NodeShutdown"
	RefusedText = "Pod was rejected as the node is shutting down."
	NotReady    = "node is shutting down"
)

// Failure returns the reason and message of a pod that a shutdown ends.
func Failure() *status.Failure {
	return &status.Failure{Reason: reason, Message: message, Disruption: corev1.PodReasonTerminationByKubelet}
}

// Progress is the progress of a shutdown.
type Progress struct {
	Done    bool     `json:"done"`              // no more pods will be stopped
	Running []string `json:"running,omitempty"` // namespace/name of pods that have not ended
	Unknown bool     `json:"unknown,omitempty"` // the node has not listed its pods
}

// Node is the node that Handler controls.
type Node interface {
	// Shutdown begins to stop the pods, unless it has begun already.
	Shutdown(Periods)
	// Progress returns nil before the first Shutdown.
	Progress() *Progress
}

// Handler serves Path. node returns nil while the node starts.
func Handler(node func() Node) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := node()
		if n == nil {
			http.Error(w, "the node is still starting", http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodPost {
			p, err := read(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			n.Shutdown(p)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(n.Progress()) // the client may have left
	})
}

func read(r *http.Request) (p Periods, err error) {
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<10)).Decode(&p); err != nil {
		return p, errors.New(
			"the body is not JSON with shutdownGracePeriod and shutdownGracePeriodCriticalPods in nanoseconds")
	}
	return p, p.Check()
}
