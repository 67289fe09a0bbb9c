package endpointslice

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

// unordered hides client.Ordered: the watches of different kinds are not ordered.
type unordered struct{ client.Client }

// After random changes of pods, Services, slices and watches, the slices of each Service contain exactly its pods that
// have an address, with their conditions. No slice exceeds the maximum size.
func TestSlicesMatchTheModel(t *testing.T) {
	t.Parallel()
	apitest.Seeds(t, 12, func(t *testing.T, seed uint64) { random(t, rand.New(rand.NewPCG(seed, 3))) })
}

func random(t *testing.T, r *rand.Rand) {
	api := apitest.New(t)
	api.Create(zoned("n", "z"))
	l := &apitest.Link{Client: api.Client}
	deps := api.Deps()
	deps.Client = l
	if r.IntN(2) == 0 {
		deps.Client = unordered{l}
	}
	c, err := New(deps, &api.Events, Config{Max: 3})
	if err != nil {
		t.Fatal(err)
	}
	api.Run(c)
	var done []string
	for range 150 {
		done = append(done, step(api, l, r))
		if r.IntN(12) > 0 {
			continue
		}
		apitest.Settle(time.Minute)
		if problem := compare(api); problem != "" {
			t.Fatalf("%s, after %s", problem, strings.Join(done, ", "))
		}
	}
	apitest.Settle(time.Minute)
	if problem := compare(api); problem != "" {
		t.Fatalf("%s, after %s", problem, strings.Join(done, ", "))
	}
}

// step makes one random change and returns its description.
func step(api *apitest.API, l *apitest.Link, r *rand.Rand) string {
	labels := map[string]string{"app": fmt.Sprint("a", r.IntN(2)), "tier": fmt.Sprint("t", r.IntN(2))}
	name := fmt.Sprint("p", r.IntN(12))
	p, exists := apitest.Get[*corev1.Pod](api, "default", name)
	switch n := r.IntN(20); {
	case n < 8 && !exists:
		api.Create(pod(name, func(p *corev1.Pod) { p.Labels = labels }))
		return "create " + name
	case n < 8:
		ready := r.IntN(3) > 0
		running(api, p, ready, fmt.Sprint("10.0.0.", 1+r.IntN(200)))
		return fmt.Sprint("status of ", name, " ", ready)
	case n < 10 && exists:
		apitest.Change(api, p, "", func(p *corev1.Pod) { p.Labels = labels })
		return "relabel " + name
	case n < 13 && exists:
		opts := metav1.DeleteOptions{GracePeriodSeconds: new(int64(r.IntN(2) * 30))}
		if _, err := api.Client.Delete(api.T.Context(), client.RefOf(p), opts); err != nil {
			api.T.Fatal(err)
		}
		return "delete " + name
	case n < 14:
		l.Cut()
		return "lose watches"
	case n < 16:
		all := apitest.List[*discoveryv1.EndpointSlice](api, "default")
		if len(all) == 0 {
			return "nothing"
		}
		victim := all[r.IntN(len(all))]
		_, err := api.Client.Delete(api.T.Context(), client.RefOf(victim), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) { // the controller may delete it at the same moment
			api.T.Fatal(err)
		}
		return "delete slice " + victim.Name
	}
	name = fmt.Sprint("s", r.IntN(4))
	s, exists := apitest.Get[*corev1.Service](api, "default", name)
	selector := map[string]string{"app": labels["app"]}
	if r.IntN(2) == 0 {
		selector = labels
	}
	switch {
	case !exists:
		api.Create(service(func(s *corev1.Service) { s.Name, s.Spec.Selector = name, selector }))
		return "create " + name
	case r.IntN(4) == 0:
		api.Delete(s, "")
		for _, slice := range apitest.List[*discoveryv1.EndpointSlice](api, "default") { // as the garbage collector does
			if metav1.IsControlledBy(slice, s) {
				_, _ = api.Client.Delete(api.T.Context(), client.RefOf(slice), metav1.DeleteOptions{})
			}
		}
		return "delete " + name
	}
	apitest.Change(api, s, "", func(s *corev1.Service) { s.Spec.Selector = selector })
	return "select others by " + name
}

// compare returns the first difference between the slices and the model; empty: none.
func compare(api *apitest.API) string {
	have := map[string][]string{}
	for _, slice := range apitest.List[*discoveryv1.EndpointSlice](api, "default") {
		name := slice.Labels[discoveryv1.LabelServiceName]
		if len(slice.Endpoints) > 3 {
			return fmt.Sprint("a slice of ", len(slice.Endpoints))
		}
		for _, e := range slice.Endpoints {
			have[name] = append(have[name], e.TargetRef.Name+" "+shownEndpoint(e))
		}
	}
	pods := apitest.List[*corev1.Pod](api, "default")
	for _, s := range apitest.List[*corev1.Service](api, "default") {
		var want []string
		for _, p := range pods {
			if p.Status.PodIP != "" && p.Labels["app"] == s.Spec.Selector["app"] &&
				(s.Spec.Selector["tier"] == "" || p.Labels["tier"] == s.Spec.Selector["tier"]) {
				want = append(want, modelled(p))
			}
		}
		slices.Sort(want)
		slices.Sort(have[s.Name])
		if !slices.Equal(have[s.Name], want) {
			return fmt.Sprintf("%s has %q, want %q", s.Name, have[s.Name], want)
		}
	}
	return ""
}

// modelled renders the endpoint of a pod.
func modelled(p *corev1.Pod) string {
	text := p.Name + " " + p.Status.PodIP
	ready, ending := p.Status.Conditions[0].Status == corev1.ConditionTrue, p.DeletionTimestamp != nil
	if ready && !ending {
		text += " ready"
	}
	if ready {
		text += " serving"
	}
	if ending {
		text += " terminating"
	}
	return text
}
