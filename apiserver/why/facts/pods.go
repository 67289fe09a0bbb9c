package facts

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
)

// NoFreePorts is the phrase in the scheduler's message about a host port that another pod uses.
const NoFreePorts = "didn't have free ports"

// Patterns of the last lines of a log.
var (
	// NoAnswer matches a connection that times out, for example because a NetworkPolicy drops its packets.
	NoAnswer = regexp.MustCompile(`(?i)i/o timeout|timed? ?out|deadline exceeded|no route to host`)
	// Unreachable matches a connection that is refused, and a name that DNS does not know.
	Unreachable = regexp.MustCompile(`(?i)connection refused|ECONNREFUSED|no such host|ENOTFOUND|` +
		`could not resolve host|name or service not known|name does not resolve|could not translate host name`)
	// Denied matches a request that the API server refuses for a service account.
	Denied = regexp.MustCompile(`User "system:serviceaccount:[^"]+" cannot `)
)

// Unprepared reports whether a pod on a node has no running container, and no container whose status says why. Such a
// pod may wait for its volumes or its sandbox, also after a restart of the node or its runtime.
func Unprepared(p *corev1.Pod) bool {
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses),
		func(s corev1.ContainerStatus) bool {
			w := s.State.Waiting
			return s.State.Running != nil || w != nil && w.Reason != "" && w.Reason != "ContainerCreating" &&
				w.Reason != "PodInitializing"
		})
}

// Claims returns the names of the PersistentVolumeClaims of a pod.
func Claims(p *corev1.Pod) (names []string) {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, p.Name+"-"+v.Name)
		}
	}
	return names
}

// Sources returns the objects that the volumes of a pod refer to and need.
func Sources(p *corev1.Pod) (refs []client.Ref) {
	add := func(resource schema.GroupVersionResource, name string, optional *bool) {
		if optional == nil || !*optional {
			refs = append(refs, client.Ref{Resource: resource, Namespace: p.Namespace, Name: name})
		}
	}
	for _, v := range p.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			add(client.ConfigMaps, v.ConfigMap.Name, v.ConfigMap.Optional)
		case v.Secret != nil:
			add(client.Secrets, v.Secret.SecretName, v.Secret.Optional)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					add(client.ConfigMaps, s.ConfigMap.Name, s.ConfigMap.Optional)
				}
				if s.Secret != nil {
					add(client.Secrets, s.Secret.Name, s.Secret.Optional)
				}
			}
		}
	}
	for _, name := range Claims(p) {
		add(client.PersistentVolumeClaims, name, nil)
	}
	return refs
}

// SharedPorts returns the host ports of a pod that another pod on a node uses, too.
func SharedPorts(p, other *corev1.Pod) (shared []corev1.ContainerPort) {
	if other.UID == p.UID || other.Spec.NodeName == "" || other.Status.Phase == corev1.PodSucceeded ||
		other.Status.Phase == corev1.PodFailed {
		return nil
	}
	theirs := hostPorts(other)
	for _, mine := range hostPorts(p) {
		if slices.ContainsFunc(theirs, func(their corev1.ContainerPort) bool {
			return their.HostPort == mine.HostPort && protocol(their) == protocol(mine) &&
				(anyIP(their.HostIP) || anyIP(mine.HostIP) || their.HostIP == mine.HostIP)
		}) {
			shared = append(shared, mine)
		}
	}
	return shared
}

func hostPorts(p *corev1.Pod) (ports []corev1.ContainerPort) {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				ports = append(ports, port)
			}
		}
	}
	return ports
}

func protocol(p corev1.ContainerPort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}

func anyIP(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }

// TargetPort returns the port of a pod to which a port of a Service forwards. It returns 0 if the pod has no port
// with the name.
func TargetPort(p *corev1.Pod, port corev1.ServicePort) int32 {
	switch {
	case port.TargetPort.Type == intstr.Int && port.TargetPort.IntVal != 0:
		return port.TargetPort.IntVal
	case port.TargetPort.Type == intstr.Int:
		return port.Port
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, cp := range c.Ports {
			if cp.Name == port.TargetPort.StrVal {
				return cp.ContainerPort
			}
		}
	}
	return 0
}

// Mentions reports whether a text contains the address of a Service, or its name followed by a port. A name alone does
// not count, because it may mean something else.
func Mentions(text string, s *corev1.Service) bool {
	for _, ip := range s.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone && word(ip).MatchString(text) {
			return true
		}
	}
	return regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(s.Name) + `(\.` + regexp.QuoteMeta(s.Namespace) +
		`[\w.]*)?:\d`).MatchString(text)
}

func word(text string) *regexp.Regexp {
	return regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(text) + `($|[^\w.]|\.$)`)
}

// Conversion returns the Service of a definition's conversion webhook, or nil if it has none.
func Conversion(d *crd.Definition) *apiextensionsv1.ServiceReference {
	c := d.Spec.Conversion
	if c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil {
		return nil
	}
	return c.Webhook.ClientConfig.Service
}

// HasImage reports whether the node already has an image.
func HasImage(n *corev1.Node, image string) bool {
	if n == nil {
		return false
	}
	if name := image[strings.LastIndex(image, "/")+1:]; !strings.ContainsAny(name, ":@") {
		image += ":latest"
	}
	return slices.ContainsFunc(n.Status.Images, func(i corev1.ContainerImage) bool {
		return slices.ContainsFunc(i.Names, func(name string) bool {
			return name == image || name == "docker.io/"+image || name == "docker.io/library/"+image
		})
	})
}
