package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SandboxOptions contains the inputs of a sandbox config that are not in the pod.
type SandboxOptions struct {
	Attempt      uint32
	Instance     string
	LogDir       string
	CgroupParent string // empty: the runtime's default
	DNS          *cri.DNSConfig
	Domain       string // of the cluster; empty: none
	Users        *cri.UserNamespace
}

// Sandbox returns the config of a pod's sandbox.
func Sandbox(pod *corev1.Pod, o SandboxOptions) *cri.PodSandboxConfig {
	labels := maps.Clone(pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	identify(labels, pod, o.Instance)
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: o.Attempt,
		},
		Hostname:     hostname(pod, o),
		LogDirectory: o.LogDir,
		DnsConfig:    o.DNS,
		PortMappings: portMappings(pod),
		Labels:       labels,
		Annotations:  maps.Clone(pod.Annotations),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    o.CgroupParent,
			Sysctls:         sysctls(pod),
			SecurityContext: sandboxSecurity(pod, o.Users),
			Overhead:        overhead(pod),
		},
	}
}

// hostnameMax is the maximum length of a hostname in a pod.
const hostnameMax = 63

func hostname(pod *corev1.Pod, o SandboxOptions) string {
	if pod.Spec.HostNetwork { // it has the host's name, which must not be set
		return ""
	}
	if name := pod.Spec.SetHostnameAsFQDN; name != nil && *name {
		return fqdn(pod, o.Domain)
	}
	return shortName(pod)
}

// longestHostname is the kernel's limit (HOST_NAME_MAX).
const longestHostname = 64

// CheckHostname returns why the pod cannot have the FQDN that it requests as hostname.
func CheckHostname(pod *corev1.Pod, domain string) error {
	if want := pod.Spec.SetHostnameAsFQDN; want == nil || !*want || pod.Spec.HostNetwork {
		return nil
	}
	if name := fqdn(pod, domain); len(name) > longestHostname {
		//nolint:staticcheck // upstream's text, which an Event contains unchanged
		return fmt.Errorf("Failed to construct FQDN from Pod hostname and cluster domain, FQDN %s is too long "+
			"(%d characters is the max, %d characters requested)", name, longestHostname, len(name))
	}
	return nil
}

// fqdn returns the pod's full name; the short name if the pod has no subdomain.
func fqdn(pod *corev1.Pod, domain string) string {
	if pod.Spec.Subdomain == "" || domain == "" || pod.Spec.HostnameOverride != nil {
		return shortName(pod)
	}
	return strings.Join([]string{shortName(pod), pod.Spec.Subdomain, pod.Namespace, "svc", domain}, ".")
}

// shortName returns the pod's hostname, with a domain only if the spec sets one.
func shortName(pod *corev1.Pod) string {
	if override := pod.Spec.HostnameOverride; override != nil {
		return *override
	}
	name := pod.Name
	if pod.Spec.Hostname != "" {
		name = pod.Spec.Hostname
	}
	if len(name) > hostnameMax {
		name = name[:hostnameMax]
		for len(name) > 0 && (name[len(name)-1] == '-' || name[len(name)-1] == '.') {
			name = name[:len(name)-1]
		}
	}
	return name
}

func identify(labels map[string]string, pod *corev1.Pod, instance string) {
	labels[LabelPodName] = pod.Name
	labels[LabelPodNamespace] = pod.Namespace
	labels[LabelPodUID] = string(pod.UID)
	labels[LabelInstance] = instance
}

// portMappings lists the ports with a host port.
func portMappings(pod *corev1.Pod) []*cri.PortMapping {
	if pod.Spec.HostNetwork {
		return nil
	}
	var out []*cri.PortMapping
	for _, c := range Containers(&pod.Spec) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				out = append(out, &cri.PortMapping{
					Protocol:      cri.Protocol(cri.Protocol_value[string(p.Protocol)]), // TCP by default
					ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
				})
			}
		}
	}
	return out
}

func sysctls(pod *corev1.Pod) map[string]string {
	if pod.Spec.SecurityContext == nil || len(pod.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		out[s.Name] = s.Value
	}
	return out
}

// overhead returns the overhead of the pod's RuntimeClass.
func overhead(pod *corev1.Pod) *cri.LinuxContainerResources {
	if len(pod.Spec.Overhead) == 0 {
		return nil
	}
	out := &cri.LinuxContainerResources{MemoryLimitInBytes: pod.Spec.Overhead.Memory().Value()}
	if milli := pod.Spec.Overhead.Cpu().MilliValue(); milli > 0 {
		out.CpuShares, out.CpuPeriod, out.CpuQuota = Shares(milli), cfsPeriod, Quota(milli)
	}
	return out
}

func sandboxSecurity(pod *corev1.Pod, users *cri.UserNamespace) *cri.LinuxSandboxSecurityContext {
	sc := &cri.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod, users),
		// Each container, also an ephemeral one, is created with the config of its sandbox, which must permit it.
		Privileged: slices.ContainsFunc(Containers(&pod.Spec), Privileged) ||
			slices.ContainsFunc(Ephemeral(pod), Privileged),
		Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
	}
	psc := pod.Spec.SecurityContext
	if psc == nil {
		return sc
	}
	sc.SupplementalGroups, sc.SupplementalGroupsPolicy = supplementalGroups(psc), groupsPolicy(psc)
	sc.SelinuxOptions = selinux(psc.SELinuxOptions)
	if psc.RunAsUser != nil {
		sc.RunAsUser = &cri.Int64Value{Value: *psc.RunAsUser}
		if psc.RunAsGroup != nil {
			sc.RunAsGroup = &cri.Int64Value{Value: *psc.RunAsGroup}
		}
	}
	return sc
}

func supplementalGroups(psc *corev1.PodSecurityContext) []int64 {
	var out []int64
	if psc.FSGroup != nil {
		out = append(out, *psc.FSGroup)
	}
	return append(out, psc.SupplementalGroups...)
}

// groupsPolicy returns whether the container also gets the groups of its user in the image.
func groupsPolicy(psc *corev1.PodSecurityContext) cri.SupplementalGroupsPolicy {
	if p := psc.SupplementalGroupsPolicy; p != nil && *p == corev1.SupplementalGroupsPolicyStrict {
		return cri.SupplementalGroupsPolicy_Strict
	}
	return cri.SupplementalGroupsPolicy_Merge
}

func namespaces(pod *corev1.Pod, users *cri.UserNamespace) *cri.NamespaceOption {
	n := &cri.NamespaceOption{
		Network: cri.NamespaceMode_POD, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD, UsernsOptions: users,
	}
	if pod.Spec.HostNetwork {
		n.Network = cri.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = cri.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		n.Pid = cri.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		n.Pid = cri.NamespaceMode_POD
	}
	return n
}

// Privileged reports whether a container is privileged.
func Privileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}
