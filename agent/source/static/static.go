// Package static reads static pods from files, without the API. For each static pod the agent maintains a mirror pod in
// the API.
//
// The UID of a static pod is a hash of the file's content, its path and the node: a changed or moved file is another
// pod. The mirror pod has a UID of its own; its annotation contains the UID of the static pod.
//
// Dir reads a folder; Notify reports changes in it.
package static

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations of static pods and their mirror pods (upstream: pkg/kubelet/types). corev1.MirrorPodAnnotationKey also
// contains the hash.
const (
	SourceAnnotation = "kubernetes.io/config.source" // file
	HashAnnotation   = "kubernetes.io/config.hash"   // the static pod's UID
	SeenAnnotation   = "kubernetes.io/config.seen"   // time at which the agent first read the file
)

// Values that make a static pod critical, whatever its class (upstream: scheduling.SystemCriticalPriority + 1000).
const (
	criticalClass    = "system-node-critical"
	criticalPriority = int32(2_000_001_000)
)

// origin is the source of a static pod.
type origin struct {
	node string
	path string
	now  time.Time
}

// complete turns the pod of a file into the pod that the node runs.
func complete(pod *corev1.Pod, o origin) error {
	// Remove fields that only the API sets, as in the output of `kubectl get -o yaml`.
	pod.ObjectMeta = metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations,
		Finalizers: pod.Finalizers,
	}
	for _, key := range []string{corev1.MirrorPodAnnotationKey, SourceAnnotation, HashAnnotation, SeenAnnotation} {
		delete(pod.Annotations, key)
	}
	pod.Status = corev1.PodStatus{}
	hash, err := hashOf(pod, o)
	if err != nil {
		return err
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.UID = types.UID(hash)
	pod.Name += "-" + strings.ToLower(o.node)
	if pod.Namespace == "" {
		pod.Namespace = corev1.NamespaceDefault
	}
	pod.Generation = 1 // the same as the mirror pod's
	annotate(pod, map[string]string{
		SourceAnnotation: "file", HashAnnotation: hash, SeenAnnotation: o.now.Format(time.RFC3339Nano),
	})
	pod.Spec.NodeName = o.node
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, // of all taints
		corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	if pod.Spec.PriorityClassName == "" {
		pod.Spec.PriorityClassName = criticalClass
	}
	pod.Spec.Priority = new(criticalPriority)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	return nil
}

// hashOf returns a hash of the pod and its origin: 32 hexadecimal digits, like upstream.
func hashOf(pod *corev1.Pod, o origin) (string, error) {
	data, err := json.Marshal(pod)
	if err != nil {
		return "", fmt.Errorf("hash pod: %w", err)
	}
	h := sha256.New()
	_, _ = h.Write(data)
	_, _ = fmt.Fprintf(h, "host:%s file:%s", o.node, o.path)
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func annotate(pod *corev1.Pod, with map[string]string) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	for key, value := range with {
		pod.Annotations[key] = value
	}
}

// Mirror returns the mirror pod of a static pod, on the node with the UID.
func Mirror(pod *corev1.Pod, node types.UID) *corev1.Pod {
	mirror := pod.DeepCopy()
	annotate(mirror, map[string]string{corev1.MirrorPodAnnotationKey: string(pod.UID)})
	mirror.UID, mirror.Generation = "", 0
	mirror.Spec.Priority = nil // admission sets it from the class
	mirror.Status = corev1.PodStatus{}
	mirror.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: pod.Spec.NodeName, UID: node, Controller: new(true),
	}}
	return mirror
}

// Mirrored returns the UID of a mirror pod's static pod; false: pod is not a mirror pod.
func Mirrored(pod *corev1.Pod) (types.UID, bool) {
	hash, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return types.UID(hash), ok
}
