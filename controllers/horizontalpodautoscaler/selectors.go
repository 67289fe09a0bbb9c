package horizontalpodautoscaler

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"monopod/apiserver/kit/follow"
)

// selectors finds the autoscalers that select a pod. The cost of a query does not grow with the number of autoscalers,
// except for those whose selector requires no label with a certain value.
type selectors struct {
	of map[follow.Key]labels.Selector
	by map[requiredLabel]map[follow.Key]bool
}

// requiredLabel is the index key of an autoscaler: a label that its selector requires. An empty key means that it
// requires none.
type requiredLabel struct{ namespace, key, value string }

func newSelectors() *selectors {
	return &selectors{of: map[follow.Key]labels.Selector{}, by: map[requiredLabel]map[follow.Key]bool{}}
}

func placeOf(key follow.Key, s labels.Selector) requiredLabel {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		if op := r.Operator(); op == selection.Equals || op == selection.DoubleEquals ||
			op == selection.In && r.Values().Len() == 1 {
			return requiredLabel{key.Namespace, r.Key(), r.Values().UnsortedList()[0]}
		}
	}
	return requiredLabel{namespace: key.Namespace}
}

// put records the selector of an autoscaler; nil removes it.
func (x *selectors) put(key follow.Key, s labels.Selector) {
	if old := x.of[key]; old != nil {
		at := placeOf(key, old)
		delete(x.by[at], key)
		if len(x.by[at]) == 0 {
			delete(x.by, at)
		}
	}
	delete(x.of, key)
	if s == nil {
		return
	}
	at := placeOf(key, s)
	if x.by[at] == nil {
		x.by[at] = map[follow.Key]bool{}
	}
	x.of[key], x.by[at][key] = s, true
}

// selecting returns the autoscalers that select one of the pods, by name.
func (x *selectors) selecting(pods []*corev1.Pod) []follow.Key {
	found := map[follow.Key]bool{}
	for _, p := range pods {
		set := labels.Set(p.Labels)
		look := func(at requiredLabel) {
			for key := range x.by[at] {
				if !found[key] && x.of[key].Matches(set) {
					found[key] = true
				}
			}
		}
		look(requiredLabel{namespace: p.Namespace})
		for key, value := range p.Labels {
			look(requiredLabel{p.Namespace, key, value})
		}
	}
	out := make([]follow.Key, 0, len(found))
	for key := range found {
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b follow.Key) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
