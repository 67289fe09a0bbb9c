// Package shutdown is how the pods of a node end before the machine does: those
// that are not critical first, then the others, all within a bound.
//
//   - Periods: how long that may take.
//   - Stages: who ends when.
//   - Progress: how far it is, as Handler tells whoever asked for it.
package shutdown

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/status"
)

// Path is where a running monopod is asked to stop its pods, with POST and Periods,
// and how far it is, with GET.
const Path = "/monopod/shutdown"

// What pods say that ended for it, and those that came too late (upstream's).
const (
	reason      = "Terminated"
	message     = "Pod was terminated in response to imminent node shutdown."
	Refused     = "NodeShutdown"
	RefusedText = "Pod was rejected as the node is shutting down."
	NotReady    = "node is shutting down"
)

// Failure is why a pod ends.
func Failure() *status.Failure {
	return &status.Failure{Reason: reason, Message: message, Disruption: corev1.PodReasonTerminationByKubelet}
}

// Periods bound the whole, and within it the end of the critical pods.
type Periods struct {
	Total    time.Duration `json:"shutdownGracePeriod"`
	Critical time.Duration `json:"shutdownGracePeriodCriticalPods"`
}

// Default is what upstream's documentation takes for its example.
func Default() Periods { return Periods{Total: 30 * time.Second, Critical: 10 * time.Second} }

// Flags have the names of kubelet's settings.
func (p *Periods) Flags(f *pflag.FlagSet) {
	*p = Default()
	f.DurationVar(&p.Total, "shutdown-grace-period", p.Total, "how long all pods together may take to end")
	f.DurationVar(&p.Critical, "shutdown-grace-period-critical-pods", p.Critical, "how much of it is for critical pods, which end last")
}

// Check finds periods that do not go together.
func (p Periods) Check() error {
	switch {
	case p.Total < time.Second:
		return fmt.Errorf("--shutdown-grace-period: %v is less than a second", p.Total)
	case p.Critical < 0:
		return fmt.Errorf("--shutdown-grace-period-critical-pods: %v is below 0", p.Critical)
	case p.Critical > p.Total:
		return fmt.Errorf("--shutdown-grace-period-critical-pods: %v is more than the %v of --shutdown-grace-period", p.Critical, p.Total)
	}
	return nil
}

// Stage is pods that end together, and how long they have.
type Stage struct {
	Pods []*corev1.Pod
	Time time.Duration
}

// Stages are in the order in which they end; one without pods takes no time and is
// left out.
func (p Periods) Stages(pods []*corev1.Pod, critical func(*corev1.Pod) bool) []Stage {
	plain, vital := Stage{Time: p.Total - p.Critical}, Stage{Time: p.Critical}
	for _, pod := range pods {
		if critical(pod) {
			vital.Pods = append(vital.Pods, pod)
		} else {
			plain.Pods = append(plain.Pods, pod)
		}
	}
	var out []Stage
	for _, s := range []Stage{plain, vital} {
		if len(s.Pods) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// Grace is what a pod gets in a stage: its own, but no more than there is.
func (s Stage) Grace(pod *corev1.Pod) time.Duration {
	own := corev1.DefaultTerminationGracePeriodSeconds * time.Second
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		own = time.Duration(*g) * time.Second
	}
	return min(own, s.Time)
}

// Progress is how far the node is.
type Progress struct {
	Done    bool     `json:"done"`              // nothing more will be ended
	Running []string `json:"running,omitempty"` // namespace/name of pods that have not ended
}

// Node is what Handler talks to.
type Node interface {
	// Shutdown begins to stop the pods, unless it has begun already.
	Shutdown(Periods)
	// Progress is nil while nobody asked for it.
	Progress() *Progress
}

// Handler answers at Path. The node is nil while there is none.
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
		_ = json.NewEncoder(w).Encode(n.Progress()) // the client may be gone
	})
}

func read(r *http.Request) (p Periods, err error) {
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<10)).Decode(&p); err != nil {
		return p, errors.New("the body is no JSON with shutdownGracePeriod and shutdownGracePeriodCriticalPods in nanoseconds")
	}
	return p, p.Check()
}
