package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"

	"monopod/apiserver/kit/claim"
)

// Pod is a pod, placed or not, with the values that the scheduler computes once.
type Pod struct {
	*corev1.Pod
	Node            string // empty: none
	Assumed         bool   // the watch does not show its binding yet
	Priority        int32
	Requests        Amounts
	NonZeroRequests Amounts // CPU and memory requests with defaults, for scores
	Ports           []HostPort
	Claims          []string // keys of its PersistentVolumeClaims: namespace/name
	// Volumes maps the volumes that were chosen for the pod's claims to the keys of the claims, until the pod is bound.
	Volumes map[string]string
	Terms   []*Term // of its inter-pod affinity
	Owner   types.UID

	disks []disk
}

// NewPod computes the scheduler's values of a pod. It does not place the pod.
func NewPod(pod *corev1.Pod) *Pod {
	p := &Pod{Pod: pod, Priority: scheduling.PodPriority(pod), Requests: requests(pod), Ports: hostPorts(pod),
		Terms: terms(pod), disks: disks(pod)}
	p.NonZeroRequests = nonZeroRequests(pod, p.Requests)
	for _, name := range claim.AllOf(pod) {
		p.Claims = append(p.Claims, pod.Namespace+"/"+name)
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		p.Owner = owner.UID
	}
	return p
}

// Bound returns the pod after its binding has become visible. It does not recompute values that a binding does not
// change.
func (p *Pod) Bound(is *corev1.Pod) *Pod {
	if p.Generation != is.Generation || len(is.Status.ContainerStatuses) > 0 || !maps.Equal(p.Labels, is.Labels) {
		return NewPod(is)
	}
	bound := *p
	bound.Pod, bound.Node, bound.Assumed, bound.Volumes = is, "", false, nil
	return &bound
}

// HostPort is a port of the node that a container requests.
type HostPort struct {
	IP       string // 0.0.0.0: all addresses
	Protocol corev1.Protocol
	Port     int32
}

const anyIP = "0.0.0.0"

// hostPorts returns the ports of containers and sidecars, which run concurrently.
func hostPorts(pod *corev1.Pod) []HostPort {
	var out []HostPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				out = append(out, normalPort(p))
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

func normalPort(p corev1.ContainerPort) HostPort {
	h := HostPort{IP: p.HostIP, Protocol: p.Protocol, Port: p.HostPort}
	if h.IP == "" || h.IP == "::" {
		h.IP = anyIP
	}
	if h.Protocol == "" {
		h.Protocol = corev1.ProtocolTCP
	}
	return h
}

// Conflicts reports whether the pods have a host port in common.
func (p *Pod) Conflicts(other *Pod) bool {
	return slices.ContainsFunc(p.Ports, func(a HostPort) bool {
		return slices.ContainsFunc(other.Ports, a.conflicts)
	})
}

func (h HostPort) conflicts(b HostPort) bool {
	return h.Port == b.Port && h.Protocol == b.Protocol && (h.IP == b.IP || h.IP == anyIP || b.IP == anyIP)
}
