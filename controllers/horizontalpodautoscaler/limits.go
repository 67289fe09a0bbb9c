package horizontalpodautoscaler

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Without a behavior, one scale-up at most doubles the pods, but allows 4 (upstream's scaleUpLimitFactor and
// scaleUpLimitMinimum).
const (
	growthFactor  = 2
	growthMinimum = 4
)

// history contains an autoscaler's recent recommendations and scale events. As in upstream, it does not survive a
// restart. Its length is bounded by the longest window and by the number of different recommendations in it.
type history struct {
	uid         types.UID
	recommended []entry // before stabilization, oldest first
	added       []entry // pods added by scale-ups; only with a behavior
	removed     []entry
}

// entry is a number of pods at a time.
type entry struct {
	pods int32
	at   time.Time
}

// recommend records a recommendation. It replaces an equal predecessor, because every window that contains the
// predecessor contains the new one.
func (h *history) recommend(pods int32, now time.Time, window time.Duration) {
	h.recommended = since(h.recommended, now.Add(-window))
	if n := len(h.recommended); n > 0 && h.recommended[n-1].pods == pods {
		h.recommended = h.recommended[:n-1]
	}
	h.recommended = append(h.recommended, entry{pods, now})
}

// scaled records a change of the number of pods, which policies limit.
func (h *history) scaled(b *autoscalingv2.HorizontalPodAutoscalerBehavior, from, to int32, now time.Time) {
	if b == nil {
		h.added, h.removed = nil, nil
		return
	}
	oldest := now.Add(-max(longest(b.ScaleUp), longest(b.ScaleDown)))
	h.added, h.removed = since(h.added, oldest), since(h.removed, oldest)
	if to > from {
		h.added = append(h.added, entry{to - from, now})
	} else {
		h.removed = append(h.removed, entry{from - to, now})
	}
}

// since returns a copy of the entries from a time on.
func since(list []entry, oldest time.Time) []entry {
	return slices.DeleteFunc(slices.Clone(list), func(e entry) bool { return e.at.Before(oldest) })
}

// longest returns the longest period of the policies.
func longest(rules *autoscalingv2.HPAScalingRules) (d time.Duration) {
	if rules != nil {
		for _, p := range rules.Policies {
			d = max(d, time.Duration(p.PeriodSeconds)*time.Second)
		}
	}
	return d
}

// limit applies stabilization, the behavior's policies, and the range to a recommendation.
func (in *input) limit(v *verdict, wanted int32) int32 {
	b := in.hpa.Spec.Behavior
	if b == nil || b.ScaleUp == nil || b.ScaleDown == nil {
		return in.limitPlain(v, wanted)
	}
	stable, reason, message := in.stabilize(v, wanted)
	if stable == wanted {
		reason, message = "ReadyForNewScale", "recommended size matches current size"
	}
	v.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, reason, "%s", message)
	pods, reason, message := in.within(v.history, stable)
	v.limited(pods != stable, reason, message)
	return pods
}

// limitPlain is limit without a behavior.
func (in *input) limitPlain(v *verdict, wanted int32) int32 {
	stable := wanted
	windowStart := in.now.Add(-in.DownscaleStabilization)
	for _, r := range v.history.recommended {
		if !r.at.Before(windowStart) {
			stable = max(stable, r.pods)
		}
	}
	v.history.recommend(wanted, in.now, in.DownscaleStabilization)
	if stable != wanted {
		v.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "ScaleDownStabilized",
			"recent recommendations were higher than current one, applying the highest recent recommendation")
	} else {
		v.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "ReadyForNewScale", "recommended size matches current size")
	}
	most, reason, message := in.hpa.Spec.MaxReplicas, "TooManyReplicas",
		"the desired replica count is more than the maximum replica count"
	if limit := max(growthFactor*int64(in.current), growthMinimum); int64(most) > limit {
		most, reason, message = int32(limit), "ScaleUpLimit",
			"the desired replica count is increasing faster than the maximum scale rate"
	}
	switch least := in.minReplicas(); {
	case stable < least:
		v.limited(true, "TooFewReplicas", "the desired replica count is less than the minimum replica count")
		return least
	case stable > most:
		v.limited(true, reason, message)
		return most
	}
	v.limited(false, "DesiredWithinRange", "the desired count is within the acceptable range")
	return stable
}

// stabilize returns the number that is nearest to the current one, between the lowest recommendation of the scale-up
// window and the highest of the scale-down window.
func (in *input) stabilize(v *verdict, wanted int32) (pods int32, reason, message string) {
	b := in.hpa.Spec.Behavior
	upWindow, downWindow := window(b.ScaleUp, 0), window(b.ScaleDown, in.DownscaleStabilization)
	lowest, highest := wanted, wanted
	for _, r := range v.history.recommended {
		if r.at.After(in.now.Add(-upWindow)) {
			lowest = min(lowest, r.pods)
		}
		if r.at.After(in.now.Add(-downWindow)) {
			highest = max(highest, r.pods)
		}
	}
	v.history.recommend(wanted, in.now, max(upWindow, downWindow))
	pods = min(max(in.current, lowest), highest)
	if wanted >= in.current {
		return pods, "ScaleUpStabilized",
			"recent recommendations were lower than current one, applying the lowest recent recommendation"
	}
	return pods, "ScaleDownStabilized",
		"recent recommendations were higher than current one, applying the highest recent recommendation"
}

// window returns the stabilization window of the rules.
func window(rules *autoscalingv2.HPAScalingRules, unset time.Duration) time.Duration {
	if rules.StabilizationWindowSeconds == nil {
		return unset
	}
	return time.Duration(*rules.StabilizationWindowSeconds) * time.Second
}

// within applies the behavior's policies and the range, and returns the number of pods with the reason and message.
func (in *input) within(h history, wanted int32) (pods int32, reason, message string) {
	spec := &in.hpa.Spec
	switch {
	case wanted > in.current:
		most, reason, message := spec.MaxReplicas, "TooManyReplicas",
			"the desired replica count is more than the maximum replica count"
		if limit := max(in.current, in.upTo(h, spec.Behavior.ScaleUp)); most > limit {
			most, reason, message = limit, "ScaleUpLimit",
				"the desired replica count is increasing faster than the maximum scale rate"
		}
		if wanted > most {
			return most, reason, message
		}
	case wanted < in.current:
		least, reason, message := in.minReplicas(), "TooFewReplicas",
			"the desired replica count is less than the minimum replica count"
		if limit := min(in.current, in.downTo(h, spec.Behavior.ScaleDown)); least < limit {
			least, reason, message = limit, "ScaleDownLimit",
				"the desired replica count is decreasing faster than the maximum scale rate"
		}
		if wanted < least {
			return least, reason, message
		}
	}
	return wanted, "DesiredWithinRange", "the desired count is within the acceptable range"
}

// upTo returns the maximum number of pods that the scale-up policies allow.
func (in *input) upTo(h history, rules *autoscalingv2.HPAScalingRules) int32 {
	return in.selected(h, rules, func(p autoscalingv2.HPAScalingPolicy, before int32) float64 {
		if p.Type == autoscalingv2.PercentScalingPolicy {
			return math.Ceil(float64(before) * (1 + float64(p.Value)/100)) // at least one pod more
		}
		return float64(before) + float64(p.Value)
	}, math.Min, math.Max)
}

// downTo returns the minimum number of pods that the scale-down policies allow.
func (in *input) downTo(h history, rules *autoscalingv2.HPAScalingRules) int32 {
	return in.selected(h, rules, func(p autoscalingv2.HPAScalingPolicy, before int32) float64 {
		if p.Type == autoscalingv2.PercentScalingPolicy {
			return math.Trunc(float64(before) * (1 - float64(p.Value)/100))
		}
		return float64(before) - float64(p.Value)
	}, math.Max, math.Min)
}

// selected returns the result of the selected policy. allows computes the result of a policy from the number of pods at
// the beginning of its period; least and most choose between the results of a smaller and a greater change.
func (in *input) selected(h history, rules *autoscalingv2.HPAScalingRules,
	allows func(autoscalingv2.HPAScalingPolicy, int32) float64, least, most func(a, b float64) float64) int32 {
	choose := most
	switch {
	case rules.SelectPolicy == nil:
	case *rules.SelectPolicy == autoscalingv2.DisabledPolicySelect:
		return in.current
	case *rules.SelectPolicy == autoscalingv2.MinChangePolicySelect:
		choose = least
	}
	result := math.NaN()
	for _, p := range rules.Policies {
		begin := in.now.Add(-time.Duration(p.PeriodSeconds) * time.Second)
		pods := allows(p, in.current-sum(h.added, begin)+sum(h.removed, begin))
		if math.IsNaN(result) {
			result = pods
		}
		result = choose(result, pods)
	}
	if math.IsNaN(result) { // without policies, which validation prevents
		return in.current
	}
	return clamp(result)
}

// sum adds the entries after a time.
func sum(list []entry, begin time.Time) (n int32) {
	for _, e := range list {
		if e.at.After(begin) {
			n += e.pods
		}
	}
	return n
}
