package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// desired is spec.replicas, which the API server defaults to 1.
func desired(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// size is how many replicas a ReplicaSet is to have.
func size(rs *appsv1.ReplicaSet) int32 {
	switch {
	case rs == nil:
		return 0
	case rs.Spec.Replicas == nil:
		return 1
	}
	return *rs.Spec.Replicas
}

// present is how many pods of a ReplicaSet exist or are to: one that it no longer
// wants counts until the ReplicaSet reports that it was deleted. Upstream does not
// wait for that and can exceed the surge for a moment.
func present(rs *appsv1.ReplicaSet) int32 { return max(size(rs), rs.Status.Replicas) }

// unreported reports whether a status is not yet about the current spec of its
// ReplicaSet, which may still create pods of the size that it had before.
func unreported(sets []*appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(sets, func(rs *appsv1.ReplicaSet) bool { return rs.Status.ObservedGeneration < rs.Generation })
}

// available is how many replicas of a ReplicaSet are available and will be kept.
func available(rs *appsv1.ReplicaSet) int32 {
	if rs == nil {
		return 0
	}
	return min(rs.Status.AvailableReplicas, size(rs))
}

func sum(sets []*appsv1.ReplicaSet, of func(*appsv1.ReplicaSet) int32) (total int32) {
	for _, rs := range sets {
		total += of(rs)
	}
	return total
}

// limits are maxSurge, rounded up, and maxUnavailable, rounded down and at most all
// replicas. If both come to nothing one replica may be unavailable, so that a rollout
// can move (upstream ResolveFenceposts). Recreate has neither.
func limits(d *appsv1.Deployment) (surge, unavailable int32) {
	rolling := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || rolling == nil {
		return 0, 0
	}
	n := desired(d)
	surge, unavailable = part(rolling.MaxSurge, n, true), part(rolling.MaxUnavailable, n, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, n)
}

// part is a number, or a percentage of n; 0 for one that cannot be read.
func part(of *intstr.IntOrString, n int32, up bool) int32 {
	value, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(of, intstr.FromInt32(0)), int(n), up)
	if err != nil {
		return 0
	}
	return int32(min(value, math.MaxInt32))
}

// most is how many pods a Deployment may have at a time.
func most(d *appsv1.Deployment) int32 {
	surge, _ := limits(d)
	return int32(min(int64(desired(d))+int64(surge), math.MaxInt32))
}

// fewest is how many pods must be available.
func fewest(d *appsv1.Deployment) int32 {
	_, unavailable := limits(d)
	return desired(d) - unavailable
}

// grown is the size of the new ReplicaSet, nil if there is none yet: what the Deployment
// asks for, as far as the surge leaves room once the old ones have reported.
func grown(d *appsv1.Deployment, new *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) int32 {
	now, want := size(new), desired(d)
	if now >= want {
		return want
	}
	if unreported(old) {
		return now
	}
	room := most(d) - sum(old, present)
	if new != nil {
		room -= present(new)
	}
	return now + min(max(room, 0), want-now)
}

// shrunk are the sizes of the old ReplicaSets, which are in the order of their age:
// first those of their replicas go that are not available, then as many more as the
// limit of unavailable ones lets go.
func shrunk(d *appsv1.Deployment, old []*appsv1.ReplicaSet, new *appsv1.ReplicaSet) []int32 {
	sizes := make([]int32, len(old))
	for i, rs := range old {
		sizes[i] = size(rs)
	}
	// The unavailable replicas of the new ReplicaSet may need the whole limit.
	spare := sum(old, size) + available(new) - fewest(d)
	if spare <= 0 {
		return sizes
	}
	for i, rs := range old {
		n := min(spare, size(rs)-available(rs))
		sizes[i] -= n
		spare -= n
	}
	surplus := sum(old, available) + available(new) - fewest(d)
	for i := range old {
		n := min(max(surplus, 0), sizes[i])
		sizes[i] -= n
		surplus -= n
	}
	return sizes
}

// proportional are the sizes of active ReplicaSets if a Deployment is scaled while it
// has several, in the order of active: each gets its share of what is added or removed,
// the largest also what rounding leaves over. Of two as large the newer grows and the
// older shrinks first.
func proportional(d *appsv1.Deployment, active []*appsv1.ReplicaSet) []int32 {
	allowed := int32(0)
	if desired(d) > 0 {
		allowed = most(d)
	}
	change := allowed - sum(active, size)
	if change > 0 {
		change = max(0, allowed-sum(active, present))
	}
	order := make([]int, len(active))
	sizes := make([]int32, len(active))
	for i, rs := range active {
		order[i], sizes[i] = i, size(rs)
	}
	slices.SortFunc(order, func(i, j int) int {
		age := compareAges(active[i], active[j])
		if change > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(sizes[j], sizes[i]), age)
	})
	left := change
	for _, i := range order {
		n := share(d, active[i])
		if change > 0 {
			n = min(max(n, 0), left)
		} else {
			n = max(min(n, 0), left)
		}
		sizes[i] += n
		left -= n
	}
	if len(order) > 0 {
		sizes[order[0]] = max(0, sizes[order[0]]+left)
	}
	return sizes
}

// share is by how much a ReplicaSet changes when its Deployment is scaled: it keeps its
// part of the pods that there could be when it was last scaled, which an annotation
// says, or else of those there are.
func share(d *appsv1.Deployment, rs *appsv1.ReplicaSet) int32 {
	if desired(d) == 0 {
		return -size(rs)
	}
	before, err := strconv.ParseInt(rs.Annotations[maxReplicasAnnotation], 10, 32)
	if err != nil || before <= 0 {
		before = int64(d.Status.Replicas)
	}
	if before <= 0 {
		return 0
	}
	return int32(math.Round(float64(size(rs))*float64(most(d))/float64(before))) - size(rs)
}

// rescaled reports whether the Deployment was scaled since one of its active
// ReplicaSets was.
func rescaled(d *appsv1.Deployment, active []*appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(active, func(rs *appsv1.ReplicaSet) bool {
		n, err := strconv.ParseInt(rs.Annotations[desiredReplicasAnnotation], 10, 32)
		return err == nil && int32(n) != desired(d)
	})
}

// saturated reports whether the new ReplicaSet has all replicas, and all are available.
func saturated(d *appsv1.Deployment, new *appsv1.ReplicaSet) bool {
	return new != nil && new.Annotations[desiredReplicasAnnotation] == strconv.Itoa(int(desired(d))) &&
		size(new) == desired(d) && new.Status.AvailableReplicas == desired(d)
}
