package spec

import (
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/security"
)

func containerSecurity(pod *corev1.Pod, c *corev1.Container, o ContainerOptions) *cri.LinuxContainerSecurityContext {
	sc := c.SecurityContext
	if sc == nil {
		sc = &corev1.SecurityContext{}
	}
	out := &cri.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod, o.Users),
		Privileged:       Privileged(c),
		ReadonlyRootfs:   sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem,
		NoNewPrivs:       sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		Capabilities:     capabilities(sc.Capabilities),
		Seccomp:          seccomp(pod, c, o),
		Apparmor:         appArmor(pod, c),
		SelinuxOptions:   selinux(security.SELinux(pod, c)),
	}
	out.RunAsUser, out.RunAsGroup = int64Value(security.RunAsUser(pod, c)), int64Value(security.RunAsGroup(pod, c))
	// CRI ignores a group without a user: set the image's user with it, which is root if the image has none.
	if out.RunAsGroup != nil && out.RunAsUser == nil {
		if out.RunAsUsername = o.Image.GetUsername(); out.RunAsUsername == "" {
			out.RunAsUser = &cri.Int64Value{Value: o.Image.GetUid().GetValue()}
		}
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		out.SupplementalGroups, out.SupplementalGroupsPolicy = supplementalGroups(psc), groupsPolicy(psc)
	}
	if (sc.ProcMount == nil || *sc.ProcMount == corev1.DefaultProcMount) && !out.Privileged {
		out.MaskedPaths = []string{ // the kernel's files that a container must not see, as in upstream's default proc mount
			"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
			"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
			"/sys/firmware", "/sys/devices/virtual/powercap",
		}
		out.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	}
	return out
}

func int64Value(p *int64) *cri.Int64Value {
	if p == nil {
		return nil
	}
	return &cri.Int64Value{Value: *p}
}

func capabilities(c *corev1.Capabilities) *cri.Capability {
	if c == nil {
		return nil
	}
	out := &cri.Capability{}
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, security.Capability(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, security.Capability(name))
	}
	return out
}

// seccomp returns the container's profile. It is never nil, which would mean unconfined.
func seccomp(pod *corev1.Pod, c *corev1.Container, o ContainerOptions) *cri.SecurityProfile {
	out := &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	p := security.Seccomp(pod, c, o.SeccompDefault)
	if p == nil || Privileged(c) {
		return out
	}
	switch p.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		out.ProfileType = cri.SecurityProfile_RuntimeDefault
	case corev1.SeccompProfileTypeLocalhost:
		out.ProfileType, out.LocalhostRef = cri.SecurityProfile_Localhost, security.SeccompPath(p, o.SeccompDir)
	}
	return out
}

// appArmor returns the container's profile, which is already checked; nil: the runtime's default.
func appArmor(pod *corev1.Pod, c *corev1.Container) *cri.SecurityProfile {
	p, err := security.AppArmorProfile(pod, c)
	if p == nil || err != nil || Privileged(c) {
		return nil
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	case corev1.AppArmorProfileTypeLocalhost:
		out := &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost}
		if p.LocalhostProfile != nil {
			out.LocalhostRef = *p.LocalhostProfile
		}
		return out
	}
	return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
}

func selinux(o *corev1.SELinuxOptions) *cri.SELinuxOption {
	if o == nil {
		return nil
	}
	return &cri.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
