package cluster

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector selects pods by their namespace and labels.
type Selector struct {
	key               string          // equal for equal selectors
	namespaces        []string        // names of namespaces
	namespaceSelector labels.Selector // additionally selects namespaces by labels; may be nil
	labels            labels.Selector
	skipTerminating   bool        // ignores pods that are being deleted
	all               []*Selector // selectors that must all match, instead of the fields above
}

// InNamespace selects pods of one namespace by their labels, except pods that are being deleted.
func InNamespace(namespace string, selector labels.Selector) *Selector {
	key := "staying|" + namespace + "|" + selector.String()
	if selector.Empty() {
		key += "*" // Nothing has the same text as Everything
	}
	return &Selector{key: key, namespaces: []string{namespace}, labels: selector, skipTerminating: true}
}

// AllOf selects the pods that every one of the selectors selects.
func AllOf(selectors []*Selector) *Selector {
	if len(selectors) == 1 {
		return selectors[0]
	}
	all := &Selector{all: selectors}
	for _, s := range selectors {
		all.key += "&" + s.key
	}
	return all
}

// Selects reports whether the pod matches; of contains the labels of each namespace.
func (s *Selector) Selects(p *corev1.Pod, of map[string]labels.Set) bool {
	if len(s.all) > 0 {
		return !slices.ContainsFunc(s.all, func(one *Selector) bool { return !one.Selects(p, of) })
	}
	if !slices.Contains(s.namespaces, p.Namespace) &&
		(s.namespaceSelector == nil || !s.namespaceSelector.Matches(of[p.Namespace])) {
		return false
	}
	if s.skipTerminating && p.DeletionTimestamp != nil {
		return false
	}
	return s.labels.Matches(labels.Set(p.Labels))
}

// TermKind is the kind of a term of an inter-pod affinity.
type TermKind byte

// The kinds of terms.
const (
	Requires TermKind = 'r' // required affinity
	Excludes TermKind = 'x' // required anti-affinity
	Prefers  TermKind = 'p' // preferred affinity or, with a negative weight, anti-affinity
)

// Term is a term of a pod's inter-pod affinity.
type Term struct {
	*Selector
	Kind     TermKind
	Topology string // topologyKey
	Weight   int64
	id       string
}

// terms returns the terms of a pod. A term with an invalid selector selects nothing.
func terms(pod *corev1.Pod) []*Term {
	a := pod.Spec.Affinity
	if a == nil {
		return nil
	}
	var out []*Term
	add := func(kind TermKind, weight int64, t *corev1.PodAffinityTerm) {
		s := termSelector(pod.Namespace, t)
		id := string(kind) + strconv.FormatInt(weight, 10) + "|" + t.TopologyKey + "|" + s.key
		out = append(out, &Term{Selector: s, Kind: kind, Topology: t.TopologyKey, Weight: weight, id: id})
	}
	if a.PodAffinity != nil {
		for i := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			add(Requires, 0, &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i])
		}
		for i := range a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			t := &a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
			add(Prefers, int64(t.Weight), &t.PodAffinityTerm)
		}
	}
	if a.PodAntiAffinity != nil {
		for i := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			add(Excludes, 0, &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i])
		}
		for i := range a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			t := &a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
			add(Prefers, -int64(t.Weight), &t.PodAffinityTerm)
		}
	}
	return out
}

// termSelector returns the selector of a term. Without namespaces and namespaceSelector, it selects pods in the given
// namespace.
func termSelector(namespace string, t *corev1.PodAffinityTerm) *Selector {
	s := &Selector{namespaces: slices.Sorted(slices.Values(t.Namespaces)), labels: labels.Nothing()}
	if len(s.namespaces) == 0 && t.NamespaceSelector == nil {
		s.namespaces = []string{namespace}
	}
	s.key = strings.Join(s.namespaces, ",") + "|"
	if by, err := metav1.LabelSelectorAsSelector(t.LabelSelector); err == nil {
		s.labels = by
		s.key += by.String()
		if by.Empty() {
			s.key += "*"
		}
	}
	if t.NamespaceSelector != nil {
		if by, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector); err == nil {
			s.namespaceSelector = by
			s.key += "|in " + by.String()
		}
	}
	return s
}
