package security

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/status"
)

var errWindows = errors.New("windowsOptions require a Windows node")

// Abilities are the features that the runtime reports.
type Abilities struct {
	Handlers []*cri.RuntimeHandler
	Features *cri.RuntimeFeatures
}

// UserNamespaces reports whether a handler supports user namespaces.
func (a Abilities) UserNamespaces(handler string) bool {
	for _, h := range a.Handlers {
		if h.Name == handler {
			return h.GetFeatures().GetUserNamespaces()
		}
	}
	return false
}

// Check returns why the runtime cannot run a pod with the handler; nil if it can. The messages are upstream's.
func (a Abilities) Check(pod *corev1.Pod, handler string) *status.Failure {
	if strict(pod) && !a.Features.GetSupplementalGroupsPolicy() {
		return refused("SupplementalGroupsPolicyNotSupported",
			"SupplementalGroupsPolicy=Strict is not supported in this node")
	}
	if !NeedsUserNamespace(pod) || a.UserNamespaces(handler) {
		return nil
	}
	if handler != "" {
		return refused("UserNamespacesNotSupported",
			fmt.Sprintf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler))
	}
	return refused("UserNamespacesNotSupported",
		"can't set `spec.hostUsers: false`, runtime does not support user namespaces")
}

func strict(pod *corev1.Pod) bool {
	psc := pod.Spec.SecurityContext
	return psc != nil && psc.SupplementalGroupsPolicy != nil &&
		*psc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict
}

// NeedsFeatures reports whether the pod needs optional features of the runtime.
func NeedsFeatures(pod *corev1.Pod) bool { return strict(pod) || NeedsUserNamespace(pod) }

// NeedsUserNamespace reports whether the pod needs a user namespace.
func NeedsUserNamespace(pod *corev1.Pod) bool {
	return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
}

// Refuse returns why a pod cannot run on this machine, whatever the runtime; nil if it can.
func (h Host) Refuse(pod *corev1.Pod, p *Policy) *status.Failure {
	if os := pod.Spec.OS; os != nil && os.Name != corev1.Linux {
		return refused("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
	}
	if err := p.sysctls(pod); err != nil {
		return refused("SysctlForbidden", "forbidden sysctl: "+err.Error())
	}
	if psc := pod.Spec.SecurityContext; psc != nil && psc.WindowsOptions != nil {
		return refused("WindowsOptionsNotSupported", errWindows.Error())
	}
	for c := range containers(pod) {
		if sc := c.SecurityContext; sc != nil && sc.WindowsOptions != nil {
			return refused("WindowsOptionsNotSupported", fmt.Sprintf("container %q: %v", c.Name, errWindows))
		}
		if err := h.checkAppArmor(pod, c); err != nil {
			return refused("AppArmor", "Cannot enforce AppArmor: "+err.Error())
		}
	}
	return nil
}

// containers returns the init containers and containers of the pod.
func containers(pod *corev1.Pod) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

func refused(reason, message string) *status.Failure {
	return &status.Failure{Reason: reason, Message: "Pod was rejected: " + message}
}

// SetsSELinux reports whether the pod sets SELinux labels.
func SetsSELinux(pod *corev1.Pod) bool {
	if psc := pod.Spec.SecurityContext; psc != nil && psc.SELinuxOptions != nil {
		return true
	}
	for c := range containers(pod) {
		if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
			return true
		}
	}
	return false
}

// SELinux returns the SELinux options of a container: its own or the pod's; nil if there are none.
func SELinux(pod *corev1.Pod, c *corev1.Container) *corev1.SELinuxOptions {
	if sc := c.SecurityContext; sc != nil && sc.SELinuxOptions != nil {
		return sc.SELinuxOptions
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		return psc.SELinuxOptions
	}
	return nil
}
