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
	key        string          // of equal selectors
	namespaces []string        // by name
	among      labels.Selector // or by the namespace's labels; nil: none
	labels     labels.Selector
	staying    bool        // only pods that are not being deleted
	all        []*Selector // if set, instead of the fields above
}

// InNamespace selects pods of one namespace by their labels, without those that are being deleted.
func InNamespace(namespace string, selector labels.Selector) *Selector {
	key := "staying|" + namespace + "|" + selector.String()
	if selector.Empty() {
		key += "*" // Nothing has the same text as Everything
	}
	return &Selector{key: key, namespaces: []string{namespace}, labels: selector, staying: true}
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

// Selects reports whether the pod matches; of is the labels of each namespace.
func (s *Selector) Selects(p *corev1.Pod, of map[string]labels.Set) bool {
	if len(s.all) > 0 {
		return !slices.ContainsFunc(s.all, func(one *Selector) bool { return !one.Selects(p, of) })
	}
	if !slices.Contains(s.namespaces, p.Namespace) && (s.among == nil || !s.among.Matches(of[p.Namespace])) {
		return false
	}
	if s.staying && p.DeletionTimestamp != nil {
		return false
	}
	return s.labels.Matches(labels.Set(p.Labels))
}

// TermKind is what a term of an affinity does.
type TermKind byte

// The kinds of terms.
const (
	Requires TermKind = 'r' // affinity, required
	Excludes TermKind = 'x' // anti-affinity, required
	Prefers  TermKind = 'p' // affinity or, with a negative weight, anti-affinity; preferred
)

// Term is a term of a pod's affinity to other pods.
type Term struct {
	*Selector
	Kind     TermKind
	Topology string // the label of nodes whose values are the domains
	Weight   int64
	id       string
}

// terms returns those of a pod. A term with an invalid selector selects nothing.
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

// termSelector: without namespaces and namespaceSelector, the pod's own namespace counts.
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
			s.among = by
			s.key += "|in " + by.String()
		}
	}
	return s
}
