package spec

import (
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Ephemeral are the pod's ephemeral containers as containers of the plain kind,
// which share their memory with the pod.
func Ephemeral(pod *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

// Find is the container of that name, of whatever kind; nil when there is none.
func Find(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for _, c := range Ephemeral(pod) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Target is the container whose processes the ephemeral container of that name
// sees; empty: none.
func Target(pod *corev1.Pod, name string) string {
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return c.TargetContainerName
		}
	}
	return ""
}

// joinProcesses lets a container see the processes of the one with the id.
func joinProcesses(sc *cri.LinuxContainerSecurityContext, id string) *cri.LinuxContainerSecurityContext {
	if id != "" {
		sc.NamespaceOptions.Pid, sc.NamespaceOptions.TargetId = cri.NamespaceMode_TARGET, id
	}
	return sc
}
