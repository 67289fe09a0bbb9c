package statefulset

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/controllers/podstate"
	"monopod/controllers/revisions"
)

// syncState is the state of a StatefulSet during one sync. A step updates it.
type syncState struct {
	set        *appsv1.StatefulSet // shared
	update     *appsv1.ControllerRevision
	current    *appsv1.ControllerRevision   // of pods below the partition until the rollout ends
	old        []*appsv1.ControllerRevision // all but update
	collisions *int32
	now        time.Time

	replicas  []*replica // desired, by ordinal
	condemned []*replica // surplus, highest ordinal first

	mu    sync.Mutex    // guards again, which parallel steps write
	again time.Duration // until a failed pod may be replaced; 0: no pod waits
}

// replica is an ordinal of a StatefulSet.
type replica struct {
	ordinal int
	pod     *corev1.Pod // nil: not created; shared
}

func newView(set *appsv1.StatefulSet, history revisions.History, pods []*corev1.Pod, now time.Time) *syncState {
	v := &syncState{set: set, update: history.Current, current: history.Current, old: history.Others,
		collisions: history.Collisions, now: now}
	for _, r := range history.Others {
		if r.Name == set.Status.CurrentRevision {
			v.current = r
		}
	}
	first := start(set)
	for i := range desired(set) {
		v.replicas = append(v.replicas, &replica{ordinal: first + i})
	}
	for _, p := range pods {
		n := ordinalOf(set, p)
		if wanted(set, n) {
			v.replicas[n-first].pod = p
		} else {
			v.condemned = append(v.condemned, &replica{n, p})
		}
	}
	slices.SortFunc(v.condemned, func(a, b *replica) int { return b.ordinal - a.ordinal })
	return v
}

// start returns the lowest ordinal, desired the number of replicas, and wanted reports whether the set should have the
// ordinal.
func start(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

func desired(set *appsv1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

func wanted(set *appsv1.StatefulSet, ordinal int) bool {
	return ordinal >= start(set) && ordinal < start(set)+desired(set)
}

// ordinalOf returns the ordinal in a pod's name; -1 if it is not a name of one of the set's pods.
func ordinalOf(set *appsv1.StatefulSet, pod *corev1.Pod) int {
	text, ok := strings.CutPrefix(pod.Name, set.Name+"-")
	n, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return -1
	}
	return int(n)
}

// revisionOf returns the name of a pod's revision.
func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }

// pods returns the existing pods.
func (v *syncState) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, rep := range slices.Concat(v.replicas, v.condemned) {
		if rep.pod != nil {
			out = append(out, rep.pod)
		}
	}
	return out
}

// available reports whether a replica runs, is not terminating, and has been ready for minReadySeconds.
func (v *syncState) available(rep *replica) bool {
	if rep.pod == nil || rep.pod.DeletionTimestamp != nil || rep.pod.Status.Phase != corev1.PodRunning {
		return false
	}
	wait, ready := podstate.AvailableIn(rep.pod, v.set.Spec.MinReadySeconds, v.now)
	return ready && wait <= 0
}

// wait schedules a sync after d at the latest.
func (v *syncState) wait(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.again == 0 || d < v.again {
		v.again = d
	}
}

// next returns the time until the next sync; 0 if only a change requires one.
func (v *syncState) next() time.Duration {
	if d := podstate.NextAvailable(v.pods(), v.set.Spec.MinReadySeconds, v.now); d > 0 {
		v.wait(d)
	}
	return v.again
}

// settled reports whether all replicas exist, are available, and have the update revision.
func (v *syncState) settled() bool {
	return len(v.condemned) == 0 && !slices.ContainsFunc(v.replicas, func(rep *replica) bool {
		return !v.available(rep) || revisionOf(rep.pod) != v.update.Name
	})
}

// partition returns the index of the first replica that a rolling update replaces.
func (v *syncState) partition() int {
	if rolling := v.set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.Partition != nil {
		return int(*rolling.Partition)
	}
	return 0
}

// maxUnavailable returns at least 1. Percentages of the replicas are rounded down.
func (v *syncState) maxUnavailable() int {
	rolling := v.set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, desired(v.set), false)
	if err != nil {
		return 1 // the API rejects such a value
	}
	return max(n, 1)
}

// revisionFor returns the revision of a new pod: below the partition, a rolling update keeps the current one.
func (v *syncState) revisionFor(ordinal int) *appsv1.ControllerRevision {
	s, keep := v.set.Spec.UpdateStrategy, 0
	switch {
	case s.Type != appsv1.RollingUpdateStatefulSetStrategyType:
	case s.RollingUpdate == nil:
		keep = int(v.set.Status.CurrentReplicas)
	default:
		keep = v.partition()
	}
	if ordinal < start(v.set)+keep {
		return v.current
	}
	return v.update
}

// outdated returns the replicas that a rolling update deletes now, highest ordinal first: all unavailable ones, and as
// many available ones as the limit allows.
func (v *syncState) outdated() []*replica {
	if v.set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		return nil
	}
	budget := v.maxUnavailable()
	for _, rep := range v.replicas {
		if !v.available(rep) {
			budget--
		}
	}
	var out []*replica
	for i := len(v.replicas) - 1; i >= min(v.partition(), len(v.replicas)); i-- {
		rep := v.replicas[i]
		if rep.pod == nil || rep.pod.DeletionTimestamp != nil || revisionOf(rep.pod) == v.update.Name {
			continue
		}
		if v.available(rep) {
			if budget <= 0 {
				continue
			}
			budget--
		}
		out = append(out, rep)
	}
	return out
}
