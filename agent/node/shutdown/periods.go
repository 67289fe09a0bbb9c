package shutdown

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/spec"
)

// Periods are the total time of a shutdown, and the part of it for critical pods; or the time for the pods of
// each priority. Pods of low priority end first.
type Periods struct {
	Total      time.Duration `json:"shutdownGracePeriod,omitempty"`
	Critical   time.Duration `json:"shutdownGracePeriodCriticalPods,omitempty"`
	ByPriority Shares        `json:"shutdownGracePeriodByPodPriority,omitempty"`
}

// Share is the time for pods with at least Priority, and less than that of the next share.
type Share struct {
	Priority int32         `json:"priority"`
	Time     time.Duration `json:"time"`
}

// Default is the example of upstream's documentation.
func Default() Periods { return Periods{Total: 30 * time.Second, Critical: 10 * time.Second} }

// The flags, which have the names of kubelet's settings.
const (
	TotalFlag    = "shutdown-grace-period"
	CriticalFlag = "shutdown-grace-period-critical-pods"
	PriorityFlag = "shutdown-grace-period-by-pod-priority"
)

// Flags adds the flags. The value of p is their default.
func (p *Periods) Flags(f *pflag.FlagSet) {
	f.DurationVar(&p.Total, TotalFlag, p.Total,
		"Total duration by which a shutdown of the machine is delayed so that pods can terminate. 0: it is not delayed.")
	f.DurationVar(&p.Critical, CriticalFlag, p.Critical,
		"Part of the shutdown grace period that is for critical pods, which terminate last.")
	f.Var(&p.ByPriority, PriorityFlag,
		"Shutdown grace periods by pod priority, for example 0=20s,1000=10s: pods of the lowest priority terminate first. "+
			"Replaces the two other periods.")
}

// Off reports whether shutdowns are not delayed.
func (p Periods) Off() bool { return p.Total == 0 && p.Critical == 0 && len(p.ByPriority) == 0 }

// CheckServe returns an error like Check, but accepts periods that are Off.
func (p Periods) CheckServe() error {
	if p.Off() {
		return nil
	}
	return p.Check()
}

// Check returns an error for periods that contradict each other.
func (p Periods) Check() error {
	switch {
	case len(p.ByPriority) > 0:
		return p.checkShares()
	case p.Total < time.Second:
		return fmt.Errorf("--%s: %v is less than a second", TotalFlag, p.Total)
	case p.Critical < 0:
		return fmt.Errorf("--%s: %v is below 0", CriticalFlag, p.Critical)
	case p.Critical > p.Total:
		return fmt.Errorf("--%s: %v is more than the %v of --%s", CriticalFlag, p.Critical, p.Total, TotalFlag)
	}
	return nil
}

func (p Periods) checkShares() error {
	if p.Total != 0 || p.Critical != 0 {
		return fmt.Errorf("--%s: cannot be combined with --%s and --%s", PriorityFlag, TotalFlag, CriticalFlag)
	}
	seen := map[int32]bool{}
	for _, s := range p.ByPriority {
		switch {
		case s.Time < 0:
			return fmt.Errorf("--%s: %v of priority %d is below 0", PriorityFlag, s.Time, s.Priority)
		case seen[s.Priority]:
			return fmt.Errorf("--%s: priority %d is given twice", PriorityFlag, s.Priority)
		}
		seen[s.Priority] = true
	}
	if p.Bound() < time.Second {
		return fmt.Errorf("--%s: %v in total is less than a second", PriorityFlag, p.Bound())
	}
	return nil
}

// critical is the lowest priority of critical pods (upstream: SystemCriticalPriority).
const critical = 2_000_000_000

// shares returns the periods by priority, the lowest first.
func (p Periods) shares() Shares {
	if len(p.ByPriority) == 0 {
		return Shares{{0, p.Total - p.Critical}, {critical, p.Critical}}
	}
	return slices.SortedFunc(slices.Values(p.ByPriority),
		func(a, b Share) int { return cmp.Compare(a.Priority, b.Priority) })
}

// Bound returns the total grace period of all stages.
func (p Periods) Bound() (sum time.Duration) {
	for _, s := range p.shares() {
		sum += s.Time
	}
	return sum
}

// Slack is the time for cleanup after the end of the last container of a stage.
const Slack = time.Second

// Needs returns the maximum duration of the whole shutdown: Bound, and Slack for each stage.
func (p Periods) Needs() time.Duration { return p.Bound() + time.Duration(len(p.shares()))*Slack }

// Within returns periods that are shortened in proportion, so that they need no more than limit.
func (p Periods) Within(limit time.Duration) Periods {
	shares, bound := p.shares(), p.Bound()
	if bound == 0 || p.Needs() <= limit {
		return p
	}
	left := max(0, limit-time.Duration(len(shares))*Slack)
	out := make(Shares, len(shares))
	for i, s := range shares {
		out[i] = Share{s.Priority, time.Duration(float64(s.Time) / float64(bound) * float64(left))}
	}
	return Periods{ByPriority: out}
}

// Stage contains the pods that end together, and their time.
type Stage struct {
	Pods []*corev1.Pod
	Time time.Duration
}

// Stages returns the stages in the order in which they end, without empty ones. Pods for which counts returns true are
// critical, whatever their priority.
func (p Periods) Stages(pods []*corev1.Pod, counts func(*corev1.Pod) bool) []Stage {
	shares := p.shares()
	all := make([]Stage, len(shares))
	for i, s := range shares {
		all[i].Time = s.Time
	}
	for _, pod := range pods {
		priority := int32(0)
		if pod.Spec.Priority != nil {
			priority = *pod.Spec.Priority
		}
		if counts(pod) {
			priority = max(priority, critical)
		}
		i := len(shares) - 1
		for i > 0 && priority < shares[i].Priority { // those below the lowest share belong to it
			i--
		}
		all[i].Pods = append(all[i].Pods, pod)
	}
	return slices.DeleteFunc(all, func(s Stage) bool { return len(s.Pods) == 0 })
}

// Grace returns a pod's grace period in a stage: its own, limited by the stage's time.
func (s Stage) Grace(pod *corev1.Pod) time.Duration {
	return min(spec.OwnGrace(pod), s.Time)
}
