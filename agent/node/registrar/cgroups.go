package registrar

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// cgroupProblems are the reasons why cgroups are not limited, by owner.
type cgroupProblems struct {
	byOwner map[string]string
	count   map[string]int // number of owners of each reason: most have the same one
}

// note sets the reason of an owner; empty: no problem.
func (l *cgroupProblems) note(of, why string) {
	if l.byOwner == nil {
		l.byOwner, l.count = map[string]string{}, map[string]int{}
	}
	if old, ok := l.byOwner[of]; ok {
		if l.count[old]--; l.count[old] == 0 {
			delete(l.count, old)
		}
		delete(l.byOwner, of)
	}
	if why != "" {
		l.byOwner[of] = why
		l.count[why]++
	}
}

// why returns the first reason in alphabetical order; empty: none.
func (l *cgroupProblems) why() string {
	if len(l.count) == 0 {
		return ""
	}
	return slices.Min(slices.Collect(maps.Keys(l.count)))
}

// SetCgroupProblem records why the cgroup of a pod, or of all pods, cannot be limited; nil: it is limited, or removed.
// A problem causes a condition of the node and an Event. Pods are still admitted.
func (r *Registrar) SetCgroupProblem(of string, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	r.mu.Lock()
	before := r.cgroupProblems.why()
	r.cgroupProblems.note(of, why)
	now := r.cgroupProblems.why()
	r.mu.Unlock()
	switch {
	case now == before:
		return
	case before == "":
		r.Event(corev1.EventTypeWarning, "CgroupLimitsUnavailable", "Pod limits cannot be set: %s", now)
	case now == "":
		r.Event(corev1.EventTypeNormal, "CgroupLimitsAvailable", "Pod limits can be set again")
	}
	r.Poke()
}

// HasCgroupProblem reports whether the cgroup of an owner is not limited.
func (r *Registrar) HasCgroupProblem(of string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cgroupProblems.byOwner[of] != ""
}
