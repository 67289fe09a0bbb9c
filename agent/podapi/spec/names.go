// Package spec computes the configs of a pod's sandbox and containers for the runtime. Everything in it is pure.
package spec

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Kubelet's labels and annotations, by which tools recognize pods. LabelInstance identifies the agent.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
	LabelInstance      = "io.monopod.instance"

	annotationHash          = "io.kubernetes.container.hash"
	annotationRestarts      = "io.kubernetes.container.restartCount"
	annotationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	annotationMessageHost   = "io.monopod.container.terminationMessageHostPath"
	annotationGrace         = "io.kubernetes.pod.terminationGracePeriod"
)

// Identity identifies the pod in the labels of a sandbox or container.
type Identity struct{ Name, Namespace, UID string }

// IdentityOf parses the labels.
func IdentityOf(labels map[string]string) Identity {
	return Identity{labels[LabelPodName], labels[LabelPodNamespace], labels[LabelPodUID]}
}

// Hash returns a hash that changes when a running container no longer matches the spec. Like kubelet's, it covers the
// name and the image, the only mutable field.
func Hash(c *corev1.Container) string {
	h := fnv.New32a()
	_ = json.NewEncoder(h).Encode([2]string{c.Name, c.Image})
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// Annotations are the annotations of a container that the agent reads after a restart.
type Annotations struct {
	Hash, MessageHostPath, MessagePolicy string
}

// AnnotationsOf parses the annotations that Container has set.
func AnnotationsOf(m map[string]string) Annotations {
	return Annotations{m[annotationHash], m[annotationMessageHost], m[annotationMessagePolicy]}
}

// LogDir returns the folder of a pod's logs below root: <namespace>_<name>_<uid>.
func LogDir(root string, pod *corev1.Pod) string {
	return filepath.Join(root, fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID))
}

// LogPath returns a container's log below LogDir.
func LogPath(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// Types of containers, by the names of kubelet's metrics.
const (
	TypeContainer = "container"
	TypeInit      = "init_container"
	TypeEphemeral = "ephemeral_container"
)

// Type returns the type of a pod's container.
func Type(pod *corev1.Pod, name string) string {
	named := func(c corev1.Container) bool { return c.Name == name }
	switch {
	case slices.ContainsFunc(pod.Spec.Containers, named):
		return TypeContainer
	case slices.ContainsFunc(pod.Spec.InitContainers, named):
		return TypeInit
	}
	return TypeEphemeral
}
