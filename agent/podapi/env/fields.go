package env

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Facts contains the values of field references that are not in the spec.
type Facts struct {
	Pod         *corev1.Pod
	PodIPs      []string
	HostIPs     []string
	Allocatable corev1.ResourceList // of the node: default limits
	Services    []Var               // the environment variables about Services
	// File reads a file of one of the pod's volumes, or fails with fs.ErrNotExist; nil: there are no files.
	File func(volume, path string) ([]byte, error)
}

// Address returns the pod's first address; empty if it has none yet.
func (f Facts) Address() string { return first(f.PodIPs) }

// Field returns the value at a field path such as metadata.name or metadata.labels['app'].
func Field(path string, f Facts) (string, error) {
	if value, ok := subscript(path, f.Pod); ok {
		return value, nil
	}
	switch path {
	case "metadata.name":
		return f.Pod.Name, nil
	case "metadata.namespace":
		return f.Pod.Namespace, nil
	case "metadata.uid":
		return string(f.Pod.UID), nil
	case "metadata.labels":
		return formatMap(f.Pod.Labels), nil
	case "metadata.annotations":
		return formatMap(f.Pod.Annotations), nil
	case "spec.nodeName":
		return f.Pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return f.Pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(f.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(f.HostIPs, ","), nil
	case "status.podIP":
		return first(f.PodIPs), nil
	case "status.podIPs":
		return strings.Join(f.PodIPs, ","), nil
	}
	return "", fmt.Errorf("%w: unsupported fieldPath: %v", ErrConfig, path)
}

// subscript handles metadata.labels['k'] and metadata.annotations['k'].
func subscript(path string, pod *corev1.Pod) (string, bool) {
	field, key, found := strings.Cut(strings.TrimSuffix(path, "']"), "['")
	if !found {
		return "", false
	}
	switch field {
	case "metadata.labels":
		return pod.Labels[key], true
	case "metadata.annotations":
		return pod.Annotations[key], true
	}
	return "", false
}

// formatMap formats labels like the downward API: key="value", one per line, sorted.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%v=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// Resource returns a request or limit of c in units of the divisor, rounded up. A missing limit is the node's
// allocatable amount.
func Resource(ref *corev1.ResourceFieldSelector, c *corev1.Container, f Facts) (string, error) {
	side, name, _ := strings.Cut(ref.Resource, ".")
	var amount resource.Quantity
	switch side {
	case "requests":
		amount = c.Resources.Requests[corev1.ResourceName(name)]
	case "limits":
		if amount = c.Resources.Limits[corev1.ResourceName(name)]; amount.IsZero() {
			amount = f.Allocatable[corev1.ResourceName(name)]
		}
	default:
		return "", fmt.Errorf("%w: unsupported container resource : %v", ErrConfig, ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == "cpu" {
		return ceil(amount.MilliValue(), divisor.MilliValue()), nil
	}
	return ceil(amount.Value(), divisor.Value()), nil
}

func ceil(a, b int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(a)/float64(b))), 10)
}

// ContainerOf returns the container of a downward API file.
func ContainerOf(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
