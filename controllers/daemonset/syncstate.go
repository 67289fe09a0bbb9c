package daemonset

import (
	"cmp"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/controllers/podstate"
	"monopod/controllers/revisions"
)

// generationAnnotation contains the generation of a DaemonSet's template, which the API server counts. Older versions
// of Kubernetes identify templates by it instead of a hash.
const generationAnnotation = appsv1.DeprecatedTemplateGeneration

// podGenerationLabel is the label of pods with the generation of their template.
const podGenerationLabel = "pod-template-generation"

// syncState is the state of a DaemonSet during one sync.
type syncState struct {
	ds      *appsv1.DaemonSet // shared
	history revisions.History
	nodes   []*corev1.Node           // by name
	pods    map[string][]*corev1.Pod // by node; the status counts the first of each
	now     time.Time

	current map[string]bool // hashes of the current template
}

func newSyncState(ds *appsv1.DaemonSet, history revisions.History, nodes []*corev1.Node, pods []*corev1.Pod,
	now time.Time) *syncState {
	st := &syncState{ds: ds, history: history, nodes: nodes, now: now, current: map[string]bool{}}
	slices.SortFunc(st.nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	st.current[st.hash()] = true
	for _, r := range history.Others { // adopted revisions may have the same template
		if hash := r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]; hash != "" &&
			revisions.Same(r, history.Current.Data.Raw, &ds.Spec.Template) {
			st.current[hash] = true
		}
	}
	st.setPods(pods)
	return st
}

// setPods sets the pods.
func (st *syncState) setPods(pods []*corev1.Pod) {
	st.pods = map[string][]*corev1.Pod{}
	for _, p := range pods {
		if node := nodeOf(p); node != "" {
			st.pods[node] = append(st.pods[node], p)
		}
	}
	for _, on := range st.pods {
		slices.SortFunc(on, compare)
	}
}

// compare orders bound pods before unbound ones, then by age, oldest first.
func compare(a, b *corev1.Pod) int {
	unbound := func(p *corev1.Pod) int {
		if p.Spec.NodeName == "" {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(unbound(a), unbound(b)), a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name))
}

// hash returns the hash label of new pods.
func (st *syncState) hash() string {
	return st.history.Current.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
}

// updated reports whether a pod has the DaemonSet's template.
func (st *syncState) updated(p *corev1.Pod) bool {
	if hash := p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]; hash != "" && st.current[hash] {
		return true
	}
	generation := st.ds.Annotations[generationAnnotation]
	return generation != "" && p.Labels[podGenerationLabel] == generation
}

// available reports whether a pod has been ready for minReadySeconds.
func (st *syncState) available(p *corev1.Pod) bool {
	wait, ready := podstate.AvailableIn(p, st.ds.Spec.MinReadySeconds, st.now)
	return ready && wait <= 0
}

// nextAvailable returns the shortest time until a ready pod becomes available; 0 if none will.
func (st *syncState) nextAvailable() time.Duration {
	pods := slices.Concat(slices.Collect(maps.Values(st.pods))...)
	return podstate.NextAvailable(pods, st.ds.Spec.MinReadySeconds, st.now)
}

// desired returns the number of nodes that should run a pod.
func (st *syncState) desired() int {
	n := 0
	for _, node := range st.nodes {
		if run, _ := fits(st.ds, node); run {
			n++
		}
	}
	return n
}

// limits returns the number of nodes that a rolling update may leave without an available pod, and the number of nodes
// with a second pod. Percentages of the nodes are rounded up.
func (st *syncState) limits() (unavailable, surge int) {
	if rolling := st.ds.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		all := st.desired()
		unavailable, surge = scaled(rolling.MaxUnavailable, all), scaled(rolling.MaxSurge, all)
	}
	if unavailable == 0 && surge == 0 {
		unavailable = 1
	}
	return unavailable, surge
}

func scaled(of *intstr.IntOrString, all int) int {
	if of == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(of, all, true)
	if err != nil {
		return 0 // the API rejects such a value
	}
	return n
}

// surges reports whether a rolling update creates a node's new pod before it deletes the old one.
func (st *syncState) surges() bool {
	s := st.ds.Spec.UpdateStrategy
	return s.Type == appsv1.RollingUpdateDaemonSetStrategyType && s.RollingUpdate != nil &&
		scaled(s.RollingUpdate.MaxSurge, 100) > 0
}
