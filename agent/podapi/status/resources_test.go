package status_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/podapi/status"
)

// amounts parses "cpu=1 memory=1Gi".
func amounts(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, f := range strings.Fields(text) {
		name, amount, _ := strings.Cut(f, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

func written(list corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		out = append(out, fmt.Sprintf("%s=%s", name, q.String()))
	}
	return strings.Join(out, " ")
}

func requirements(requests, limits string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
}

// TestResourcesOfThePod checks that, as with kubelet, the status contains the requests and limits of the spec before
// the pod runs, and then the resources that its cgroup enforces.
func TestResourcesOfThePod(t *testing.T) {
	t.Parallel()
	const extended = "example.com/gpu=1"
	for name, c := range map[string]struct {
		itself, first, second, level *corev1.ResourceRequirements
		phase                        corev1.PodPhase
		resize                       *status.Resize
		old                          *corev1.ResourceRequirements
		requests, limits, allocated  string
	}{
		"nothing": {phase: corev1.PodRunning},
		"new": {
			first:    new(requirements("cpu=100m memory=64Mi "+extended, "memory=128Mi "+extended)),
			second:   new(requirements("cpu=50m", "")),
			requests: "cpu=150m example.com/gpu=1 memory=64Mi", limits: "example.com/gpu=1 memory=128Mi",
			allocated: "cpu=150m example.com/gpu=1 memory=64Mi",
		},
		"running": {
			phase:    corev1.PodRunning,
			first:    new(requirements("cpu=100m memory=64Mi "+extended, "cpu=1 memory=128Mi "+extended)),
			second:   new(requirements("cpu=50m", "cpu=1")),
			requests: "cpu=150m memory=64Mi", limits: "cpu=2", allocated: "cpu=150m example.com/gpu=1 memory=64Mi",
		},
		"minimum CPU": {phase: corev1.PodRunning, first: new(requirements("cpu=2m", "")), allocated: "cpu=2m"},
		"succeeded": {
			phase: corev1.PodSucceeded, first: new(requirements("cpu=1", "cpu=1")), second: new(requirements("", "")),
			requests: "cpu=1", limits: "cpu=1", allocated: "cpu=1",
		},
		"resized": {
			phase: corev1.PodRunning, first: new(requirements("cpu=2", "")), old: new(requirements("cpu=1", "")),
			resize:   &status.Resize{Type: corev1.PodResizeInProgress},
			requests: "cpu=1", allocated: "cpu=2",
		},
		"resize pending": {
			phase: corev1.PodRunning, first: new(requirements("cpu=1", "")), old: new(requirements("cpu=1", "")),
			resize:   &status.Resize{Type: corev1.PodResizePending},
			requests: "cpu=1", allocated: "cpu=1",
		},
		"pod-level": {
			phase: corev1.PodRunning, itself: new(requirements("cpu=1", "cpu=2")), first: new(requirements("memory=64Mi", "")),
			requests: "cpu=1 memory=64Mi", limits: "cpu=2", allocated: "cpu=1 memory=64Mi",
		},
		"pod-level, resized": {
			phase: corev1.PodRunning, itself: new(requirements("cpu=1", "cpu=2")), level: new(requirements("cpu=500m", "cpu=1")),
			resize:   &status.Resize{Type: corev1.PodResizeInProgress},
			requests: "cpu=500m", limits: "cpu=1", allocated: "cpu=1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pod(always, "a", "b")
			p.Spec.Resources, p.Status.Phase, p.Status.Resources = c.itself, c.phase, c.old
			containers := seen(running("a", 0), running("b", 0))
			if c.phase == "" {
				containers = seen(running("a", 0))
			}
			for i, r := range []*corev1.ResourceRequirements{c.first, c.second} {
				if r != nil {
					p.Spec.Containers[i].Resources = *r
				}
			}
			got := status.Of(
				status.Input{Pod: p, Observed: containers, Resize: c.resize, PodLevelResources: c.level, Now: at(0)},
			)
			if r, l, a := written(got.Resources.Requests), written(got.Resources.Limits),
				written(got.AllocatedResources); r != c.requests ||
				l != c.limits ||
				a != c.allocated {
				t.Errorf("requests %q, limits %q, allocated %q", r, l, a)
			}
		})
	}
}
