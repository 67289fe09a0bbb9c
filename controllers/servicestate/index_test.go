package servicestate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// The index returns the same Services and pods as a scan of all objects, and is empty when all objects are deleted.
func TestIndexFindsWhatAScanFinds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		x := NewIndex()
		services, pods := map[string]client.Object{}, map[string]client.Object{}
		some := func() map[string]string {
			out := map[string]string{}
			for range r.IntN(4) {
				out[fmt.Sprint("k", r.IntN(3))] = fmt.Sprint("v", r.IntN(2))
			}
			return out
		}
		meta := func() metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: fmt.Sprint("ns", r.IntN(2)), Name: fmt.Sprint("o", r.IntN(8)), UID: "u"}
		}
		for range 300 {
			m := meta()
			key := m.Namespace + "/" + m.Name
			if r.IntN(2) == 0 {
				var next client.Object
				if r.IntN(4) > 0 {
					next = &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Selector: some()}}
				}
				if old := services[key]; old != nil || next != nil {
					x.OnService(old, next)
				}
				store(services, key, next)
				continue
			}
			var next client.Object
			if r.IntN(4) > 0 {
				p := &corev1.Pod{ObjectMeta: m}
				p.Labels = some()
				if r.IntN(3) > 0 {
					p.Status.PodIP = fmt.Sprint("10.0.0.", r.IntN(3))
					p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
				}
				next = p
			}
			old := pods[key]
			if old == nil && next == nil {
				continue
			}
			got := x.OnPod(old, next)
			store(pods, key, next)
			if want := woken(services, old, next); !equal(got, want) {
				t.Fatalf("seed %d: %v -> %v wakes %v, want %v", seed, old, next, got, want)
			}
			for _, s := range services {
				if got, want := names(x.Pods(s.(*corev1.Service))), selected(pods, s.(*corev1.Service)); !slices.Equal(got, want) {
					t.Fatalf("seed %d: %v selects %v, want %v", seed, s, got, want)
				}
			}
		}
		for _, s := range services {
			x.OnService(s, nil)
		}
		for _, p := range pods {
			x.OnPod(p, nil)
		}
		if len(x.namespaces) != 0 {
			t.Fatalf("seed %d: left in the index: %v", seed, x.namespaces)
		}
	}
}

func store(all map[string]client.Object, key string, obj client.Object) {
	if delete(all, key); obj != nil {
		all[key] = obj
	}
}

// woken scans all Services for those that a change of a pod affects.
func woken(services map[string]client.Object, old, new client.Object) []follow.Key {
	var out []follow.Key
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	for _, s := range services {
		before, after := scan(s.(*corev1.Service), was), scan(s.(*corev1.Service), is)
		if before != after || before && !slices.Equal(was.Status.PodIPs, is.Status.PodIPs) {
			out = append(out, types.NamespacedName{Namespace: s.GetNamespace(), Name: s.GetName()})
		}
	}
	return out
}

func scan(s *corev1.Service, p *corev1.Pod) bool {
	return p != nil && p.Status.PodIP != "" && p.Namespace == s.Namespace && len(s.Spec.Selector) > 0 &&
		labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels))
}

func selected(pods map[string]client.Object, s *corev1.Service) []string {
	var out []string
	for _, p := range pods {
		if p.GetNamespace() == s.Namespace && len(s.Spec.Selector) > 0 &&
			labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.GetLabels())) {
			out = append(out, p.GetName())
		}
	}
	slices.Sort(out)
	return out
}

func names(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

func equal(a, b []follow.Key) bool {
	by := func(x, y follow.Key) int {
		return slices.Compare([]string{x.Namespace, x.Name}, []string{y.Namespace, y.Name})
	}
	return slices.Equal(slices.SortedFunc(slices.Values(a), by), slices.SortedFunc(slices.Values(b), by))
}

// A change of a pod wakes its Service only if it affects the endpoints.
func TestWhatWakes(t *testing.T) {
	t.Parallel()
	base := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		wakes  bool
	}{
		"readiness":      {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"address":        {func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.2"}} }, true},
		"deletion":       {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, true},
		"end":            {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"host name":      {func(p *corev1.Pod) { p.Spec.Hostname = "h" }, true},
		"selected label": {func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }, true},
		"more labels":    {func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web", "a": "b"} }, false},
		"annotations":    {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, false},
		"another condition": {func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions,
				corev1.PodCondition{Type: "x"})
		}, false},
		"restarts": {func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} }, false},
	} {
		x := NewIndex()
		x.OnService(nil, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}})
		if got := x.OnPod(nil, base); len(got) != 1 {
			t.Fatal(got)
		}
		next := base.DeepCopy()
		c.change(next)
		if got := x.OnPod(base, next); (len(got) > 0) != c.wakes {
			t.Errorf("%s: wakes %v", name, got)
		}
	}
}
