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
	"k8s.io/utils/ptr"

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

func newSyncState(set *appsv1.StatefulSet, history revisions.History, pods []*corev1.Pod, now time.Time) *syncState {
	st := &syncState{set: set, update: history.Current, current: history.Current, old: history.Others,
		collisions: history.Collisions, now: now}
	for _, r := range history.Others {
		if r.Name == set.Status.CurrentRevision {
			st.current = r
		}
	}
	first := start(set)
	for i := range desired(set) {
		st.replicas = append(st.replicas, &replica{ordinal: first + i})
	}
	for _, p := range pods {
		n := ordinalOf(set, p)
		if wanted(set, n) {
			st.replicas[n-first].pod = p
		} else {
			st.condemned = append(st.condemned, &replica{n, p})
		}
	}
	slices.SortFunc(st.condemned, func(a, b *replica) int { return b.ordinal - a.ordinal })
	return st
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
	return int(ptr.Deref(set.Spec.Replicas, 1))
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
func (st *syncState) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, rep := range slices.Concat(st.replicas, st.condemned) {
		if rep.pod != nil {
			out = append(out, rep.pod)
		}
	}
	return out
}

// available reports whether a replica runs, is not terminating, and has been ready for minReadySeconds.
func (st *syncState) available(rep *replica) bool {
	if rep.pod == nil || rep.pod.DeletionTimestamp != nil || rep.pod.Status.Phase != corev1.PodRunning {
		return false
	}
	wait, ready := podstate.AvailableIn(rep.pod, st.set.Spec.MinReadySeconds, st.now)
	return ready && wait <= 0
}

// wait schedules a sync after d at the latest.
func (st *syncState) wait(d time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.again == 0 || d < st.again {
		st.again = d
	}
}

// next returns the time until the next sync; 0 if only a change requires one.
func (st *syncState) next() time.Duration {
	if d := podstate.NextAvailable(st.pods(), st.set.Spec.MinReadySeconds, st.now); d > 0 {
		st.wait(d)
	}
	return st.again
}

// settled reports whether all replicas exist, are available, and have the update revision.
func (st *syncState) settled() bool {
	return len(st.condemned) == 0 && !slices.ContainsFunc(st.replicas, func(rep *replica) bool {
		return !st.available(rep) || revisionOf(rep.pod) != st.update.Name
	})
}

// partition returns the index of the first replica that a rolling update replaces.
func (st *syncState) partition() int {
	if rolling := st.set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.Partition != nil {
		return int(*rolling.Partition)
	}
	return 0
}

// maxUnavailable returns at least 1. Percentages of the replicas are rounded down.
func (st *syncState) maxUnavailable() int {
	rolling := st.set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, desired(st.set), false)
	if err != nil {
		return 1 // the API rejects such a value
	}
	return max(n, 1)
}

// revisionFor returns the revision of a new pod: below the partition, a rolling update keeps the current one.
func (st *syncState) revisionFor(ordinal int) *appsv1.ControllerRevision {
	s, keep := st.set.Spec.UpdateStrategy, 0
	switch {
	case s.Type != appsv1.RollingUpdateStatefulSetStrategyType:
	case s.RollingUpdate == nil:
		keep = int(st.set.Status.CurrentReplicas)
	default:
		keep = st.partition()
	}
	if ordinal < start(st.set)+keep {
		return st.current
	}
	return st.update
}

// outdated returns the replicas that a rolling update deletes now, highest ordinal first: all unavailable ones, and as
// many available ones as the limit allows.
func (st *syncState) outdated() []*replica {
	if st.set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		return nil
	}
	budget := st.maxUnavailable()
	for _, rep := range st.replicas {
		if !st.available(rep) {
			budget--
		}
	}
	var out []*replica
	for i := len(st.replicas) - 1; i >= min(st.partition(), len(st.replicas)); i-- {
		rep := st.replicas[i]
		if rep.pod == nil || rep.pod.DeletionTimestamp != nil || revisionOf(rep.pod) == st.update.Name {
			continue
		}
		if st.available(rep) {
			if budget <= 0 {
				continue
			}
			budget--
		}
		out = append(out, rep)
	}
	return out
}
