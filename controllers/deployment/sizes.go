package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// desired returns spec.replicas, which the API server defaults to 1.
func desired(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 1) }

// size returns the desired replicas of a ReplicaSet.
func size(rs *appsv1.ReplicaSet) int32 {
	switch {
	case rs == nil:
		return 0
	case rs.Spec.Replicas == nil:
		return 1
	}
	return *rs.Spec.Replicas
}

// present returns how many pods of a ReplicaSet exist or will be created. A surplus pod counts until the ReplicaSet
// reports that it is deleted. Upstream does not wait for that and can exceed the surge for a moment.
func present(rs *appsv1.ReplicaSet) int32 { return max(size(rs), rs.Status.Replicas) }

// unreported reports whether a ReplicaSet has not observed its current spec. It may still create pods for its
// previous size.
func unreported(sets []*appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(sets,
		func(rs *appsv1.ReplicaSet) bool { return rs.Status.ObservedGeneration < rs.Generation })
}

// available returns how many available replicas of a ReplicaSet are within its desired size.
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

// limits returns maxSurge, rounded up, and maxUnavailable, rounded down and at most all replicas. If both are 0, one
// replica may be unavailable, so that a rollout can make progress (upstream ResolveFenceposts). For Recreate both are
// 0.
func limits(d *appsv1.Deployment) (surge, unavailable int32) {
	rolling := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || rolling == nil {
		return 0, 0
	}
	n := desired(d)
	surge, unavailable = intOrPercent(rolling.MaxSurge, n, true), intOrPercent(rolling.MaxUnavailable, n, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, n)
}

// intOrPercent returns a number, or a percentage of n; 0 if it is invalid.
func intOrPercent(of *intstr.IntOrString, n int32, up bool) int32 {
	value, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(of, intstr.FromInt32(0)), int(n), up)
	if err != nil {
		return 0
	}
	return int32(min(value, math.MaxInt32))
}

// most returns the maximum number of pods: replicas plus surge.
func most(d *appsv1.Deployment) int32 {
	surge, _ := limits(d)
	return int32(min(int64(desired(d))+int64(surge), math.MaxInt32))
}

// fewest returns the minimum number of available pods.
func fewest(d *appsv1.Deployment) int32 {
	_, unavailable := limits(d)
	return desired(d) - unavailable
}

// grown returns the size to which the new ReplicaSet, nil if it does not exist yet, can grow: the Deployment's
// replicas, limited by the surge. It does not grow before the old ReplicaSets have observed their sizes.
func grown(d *appsv1.Deployment, new *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) int32 {
	now, want := size(new), desired(d)
	if now >= want {
		return want
	}
	if unreported(old) {
		return now
	}
	free := most(d) - sum(old, present)
	if new != nil {
		free -= present(new)
	}
	return now + min(max(free, 0), want-now)
}

// shrunk returns the sizes to which the old ReplicaSets, oldest first, can shrink: first by their unavailable
// replicas, then by available ones as far as maxUnavailable allows.
func shrunk(d *appsv1.Deployment, old []*appsv1.ReplicaSet, new *appsv1.ReplicaSet) []int32 {
	sizes := make([]int32, len(old))
	for i, rs := range old {
		sizes[i] = size(rs)
	}
	// The new ReplicaSet's unavailable replicas may use up all of maxUnavailable.
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

// proportional returns the sizes of the active ReplicaSets, in their order, when a Deployment is scaled while it has
// several. Each gets its share of the change, and the largest also gets the rounding difference. Among equal sizes
// the newer ReplicaSet grows first and the older one shrinks first.
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

// share returns by how much a ReplicaSet's size changes when its Deployment is scaled. It keeps its fraction of the
// maximum number of pods when it was last scaled, according to its annotation, or else of the existing pods.
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

// rescaled reports whether the Deployment was scaled after one of its active ReplicaSets was.
func rescaled(d *appsv1.Deployment, active []*appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(active, func(rs *appsv1.ReplicaSet) bool {
		n, err := strconv.ParseInt(rs.Annotations[desiredReplicasAnnotation], 10, 32)
		return err == nil && int32(n) != desired(d)
	})
}

// saturated reports whether the new ReplicaSet has all desired replicas and all are available.
func saturated(d *appsv1.Deployment, new *appsv1.ReplicaSet) bool {
	return new != nil && new.Annotations[desiredReplicasAnnotation] == strconv.Itoa(int(desired(d))) &&
		size(new) == desired(d) && new.Status.AvailableReplicas == desired(d)
}
