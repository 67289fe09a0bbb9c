package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

func refOf(pod string) client.Ref {
	return client.Ref{Resource: client.Pods, Namespace: "default", Name: pod}
}

// wants sets the requests of the first container.
func wants(kv ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := corev1.ResourceList{}
		for i := 0; i < len(kv); i += 2 {
			list[corev1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
		}
		p.Spec.Containers[0].Resources.Requests = list
	}
}

func app(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }
}

// together adds an affinity to pods of an app, over the node label disk.
func together(with string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(with)}}
	}
}

// apart adds an anti-affinity to pods of an app, over the node label disk.
func apart(from string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(from)}}
	}
}

func terms(app string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: "disk",
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
}
