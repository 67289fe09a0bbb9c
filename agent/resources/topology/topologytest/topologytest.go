// Package topologytest contains helpers for tests of topology.Providers.
package topologytest

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/podapi/spec"
	"monopod/agent/resources/topology"
)

// Guaranteed returns a pod with a container for each name. The first letter of the name is the type: "i" for an init
// container, "s" for a sidecar, "c" for a container; asks returns the requests for the rest of the name.
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

// Admit allocates for all containers of the pod, until an error.
func Admit(t testing.TB, p topology.Provider, pod *corev1.Pod, hint topology.Hint) error {
	t.Helper()
	for _, c := range spec.Containers(&pod.Spec) {
		if err := p.Allocate(t.Context(), pod, c, hint); err != nil {
			return err
		}
	}
	return nil
}

// Allotted returns the allotments of the pod's containers: "c1=0".
func Allotted(t testing.TB, p topology.Provider, pod *corev1.Pod, show func(spec.Allotment) string) []string {
	t.Helper()
	var out []string
	for _, c := range spec.Containers(&pod.Spec) {
		a, err := p.Allotment(t.Context(), pod, c)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c.Name+"="+show(a))
	}
	return out
}

// Created returns the containers of the pod as if they had been created.
func Created(t testing.TB, p topology.Provider, pod *corev1.Pod) []topology.Container {
	t.Helper()
	var out []topology.Container
	for _, c := range spec.Containers(&pod.Spec) {
		a, err := p.Allotment(t.Context(), pod, c)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, topology.Container{Pod: pod.UID, Container: c.Name, Annotations: a.Annotations})
	}
	return out
}

// As returns made with another pod's UID.
func As(uid types.UID, made []topology.Container) []topology.Container {
	out := slices.Clone(made)
	for i := range out {
		out[i].Pod = uid
	}
	return out
}
