package security

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
)

// SafeSysctls returns the sysctls that upstream allows for every pod: they are namespaced and do not affect other pods.
// Linux 4.15 and later have all of them.
func SafeSysctls() []string {
	return []string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
	}
}

// pattern allows one sysctl, or all sysctls with a prefix.
type pattern struct {
	name      string
	prefix    bool
	namespace sysctl.Namespace
}

// patternForm matches the name of a sysctl, or a prefix and *; maxPattern is upstream's SysctlMaxLength.
const (
	patternForm = `^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9][-_.a-z0-9]*\*?$`
	maxPattern  = 253
)

func parsePattern(s string) (pattern, error) {
	if ok, err := regexp.MatchString(patternForm, s); err != nil || !ok || len(s) > maxPattern {
		return pattern{},
			fmt.Errorf("sysctl %q must have at most %d characters and be a name, or a prefix that ends in *", s, maxPattern)
	}
	ns, name, prefix := sysctl.GetNamespace(s)
	if prefix && ns == sysctl.UnknownNamespace { // kernel.shm* and net* are namespaced as a whole
		ns, _, _ = sysctl.GetNamespace(strings.TrimSuffix(name, ".") + ".x")
	}
	if ns == sysctl.UnknownNamespace {
		return pattern{}, fmt.Errorf("the sysctl %q is not known to be namespaced", s)
	}
	return pattern{name, prefix, ns}, nil
}

// sysctls returns an error for a sysctl of the pod that is not allowed.
func (p *Policy) sysctls(pod *corev1.Pod) error {
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return nil
	}
	for _, s := range sc.Sysctls {
		if err := p.allowed(s.Name, pod.Spec.HostNetwork, pod.Spec.HostIPC); err != nil {
			return err
		}
	}
	return nil
}

func (p *Policy) allowed(name string, hostNetwork, hostIPC bool) error {
	name = sysctl.NormalizeName(name)
	for _, list := range [][]string{SafeSysctls(), p.UnsafeSysctls} {
		for _, s := range list {
			allow, err := parsePattern(s)
			if err != nil || name != allow.name && (!allow.prefix || !strings.HasPrefix(name, allow.name)) {
				continue
			}
			if hostNetwork && allow.namespace == sysctl.NetNamespace || hostIPC && allow.namespace == sysctl.IPCNamespace {
				return fmt.Errorf("%q not allowed with host %s enabled", name, allow.namespace)
			}
			return nil
		}
	}
	return fmt.Errorf("%q not allowlisted", name)
}
