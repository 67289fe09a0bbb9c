// Package topologytest helps to test who gives containers what they have for
// themselves.
package topologytest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/topology"
)

// Guaranteed is a pod of init containers and containers. The first letter of a name
// says what it is, "i" an init container, "s" a sidecar, "c" a container; asks makes
// the rest into what it asks for.
func Guaranteed(uid string, asks func(text string) corev1.ResourceList, names ...string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID = types.UID(uid)
	for _, name := range names {
		list := asks(name[1:])
		c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}
		switch name[0] {
		case 'c':
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			continue
		case 's':
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	return pod
}

// Admit allocates for all containers of the pod, as long as none is refused.
func Admit(t testing.TB, p topology.Provider, pod *corev1.Pod, hint topology.Hint) error {
	t.Helper()
	for _, c := range containers(pod) {
		if err := p.Allocate(t.Context(), pod, c, hint); err != nil {
			return err
		}
	}
	return nil
}

// Allotted is what each container of the pod has: "c1=0".
func Allotted(t testing.TB, p topology.Provider, pod *corev1.Pod, show func(topology.Allotment) string) []string {
	t.Helper()
	var out []string
	for _, c := range containers(pod) {
		a, err := p.Allotment(t.Context(), pod, c)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c.Name+"="+show(a))
	}
	return out
}

// Recover tells p of the pod's containers as they were made.
func Recover(p topology.Provider, pod *corev1.Pod, made map[string]map[string]string) {
	for _, c := range containers(pod) {
		p.Recover(pod.UID, c.Name, made[c.Name])
	}
}

// Made are the annotations that each container of the pod is made with.
func Made(t testing.TB, p topology.Provider, pod *corev1.Pod) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for _, c := range containers(pod) {
		a, err := p.Allotment(t.Context(), pod, c)
		if err != nil {
			t.Fatal(err)
		}
		out[c.Name] = a.Annotations
	}
	return out
}

func containers(pod *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	return out
}
