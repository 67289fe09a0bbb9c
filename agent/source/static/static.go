// Package static reads the pods that a node is given by files, without the API:
// static pods. For each the agent keeps a pod in the API that shows it: its mirror.
//
// A static pod is known by its UID, a hash of what the file says, of the file's
// path and of the node: whoever edits or moves the file gets another pod. The
// mirror has a UID of its own, as every object; its annotation says whose it is.
//
// A Dir reads a folder; Notify tells when there may be something new in it.
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

// Annotations of static pods and their mirrors beside corev1.MirrorPodAnnotationKey,
// which is the hash again (upstream: pkg/kubelet/types).
const (
	SourceAnnotation = "kubernetes.io/config.source" // file
	HashAnnotation   = "kubernetes.io/config.hash"   // the static pod's UID
	SeenAnnotation   = "kubernetes.io/config.seen"   // when the agent first saw it
)

// What makes a static pod critical whatever class its file names (upstream:
// scheduling.SystemCriticalPriority + 1000).
const (
	criticalClass    = "system-node-critical"
	criticalPriority = int32(2_000_001_000)
)

// origin is where a static pod comes from.
type origin struct {
	node string
	path string
	now  time.Time
}

// settle makes of what a file says the pod that the node runs.
func settle(pod *corev1.Pod, o origin) error {
	clean(pod)
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
	pod.Generation = 1 // as its mirror's
	annotate(pod, map[string]string{
		SourceAnnotation: "file", HashAnnotation: hash, SeenAnnotation: o.now.Format(time.RFC3339Nano),
	})
	place(&pod.Spec, o.node)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	return nil
}

// clean drops what only the API gives, as in a file made from `kubectl get -o yaml`.
func clean(pod *corev1.Pod) {
	pod.ObjectMeta = metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations, Finalizers: pod.Finalizers,
	}
	for _, key := range []string{corev1.MirrorPodAnnotationKey, SourceAnnotation, HashAnnotation, SeenAnnotation} {
		delete(pod.Annotations, key)
	}
	pod.Status = corev1.PodStatus{}
}

// hashOf is 32 hexadecimal digits, as upstream's.
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

// place binds the pod to its node, which no taint drives it from.
func place(spec *corev1.PodSpec, node string) {
	spec.NodeName = node
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	if spec.PriorityClassName == "" {
		spec.PriorityClassName = criticalClass
	}
	spec.Priority = new(criticalPriority)
}

// Mirror is the pod that shows a static one in the API, on the node with the UID.
func Mirror(pod *corev1.Pod, node types.UID) *corev1.Pod {
	mirror := pod.DeepCopy()
	annotate(mirror, map[string]string{corev1.MirrorPodAnnotationKey: string(pod.UID)})
	mirror.UID, mirror.Generation = "", 0
	mirror.Spec.Priority = nil // its class says it
	mirror.Status = corev1.PodStatus{}
	mirror.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: pod.Spec.NodeName, UID: node, Controller: new(true),
	}}
	return mirror
}

// Mirrored is the UID of the static pod that a pod of the API shows; false: it is
// no mirror.
func Mirrored(pod *corev1.Pod) (types.UID, bool) {
	hash, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return types.UID(hash), ok
}
