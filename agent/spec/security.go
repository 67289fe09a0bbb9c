package spec

import (
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrRoot says that a container must not run as root and would.
var ErrRoot = errors.New("container has runAsNonRoot and image will run as root")

// CheckNonRoot refuses a container that says runAsNonRoot when its user, or its
// image's, is root or not known to be another.
func CheckNonRoot(pod *corev1.Pod, c *corev1.Container, image *cri.Image) error {
	if !nonRoot(pod, c) {
		return nil
	}
	if uid := runAsUser(pod, c); uid != nil {
		if *uid == 0 {
			return fmt.Errorf("%w (pod: %q, container: %s)", ErrRoot, pod.Namespace+"/"+pod.Name, c.Name)
		}
		return nil
	}
	if uid := image.GetUid(); uid != nil && uid.Value != 0 {
		return nil
	}
	if name := image.GetUsername(); name != "" && name != "root" {
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root", name)
	}
	return fmt.Errorf("%w (pod: %q, container: %s)", ErrRoot, pod.Namespace+"/"+pod.Name, c.Name)
}

func nonRoot(pod *corev1.Pod, c *corev1.Container) bool {
	if sc := c.SecurityContext; sc != nil && sc.RunAsNonRoot != nil {
		return *sc.RunAsNonRoot
	}
	psc := pod.Spec.SecurityContext
	return psc != nil && psc.RunAsNonRoot != nil && *psc.RunAsNonRoot
}

func runAsUser(pod *corev1.Pod, c *corev1.Container) *int64 {
	if sc := c.SecurityContext; sc != nil && sc.RunAsUser != nil {
		return sc.RunAsUser
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		return psc.RunAsUser
	}
	return nil
}

func runAsGroup(pod *corev1.Pod, c *corev1.Container) *int64 {
	if sc := c.SecurityContext; sc != nil && sc.RunAsGroup != nil {
		return sc.RunAsGroup
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		return psc.RunAsGroup
	}
	return nil
}

func containerSecurity(pod *corev1.Pod, c *corev1.Container, seccompDir string) *cri.LinuxContainerSecurityContext {
	sc := c.SecurityContext
	if sc == nil {
		sc = &corev1.SecurityContext{}
	}
	out := &cri.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod),
		Privileged:       Privileged(c),
		ReadonlyRootfs:   sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem,
		NoNewPrivs:       sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		Capabilities:     capabilities(sc.Capabilities),
		Seccomp:          seccomp(pod, c, seccompDir),
		RunAsUser:        int64Value(runAsUser(pod, c)),
		RunAsGroup:       int64Value(runAsGroup(pod, c)),
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		out.SupplementalGroups = supplementalGroups(psc)
	}
	if sc.ProcMount == nil || *sc.ProcMount == corev1.DefaultProcMount {
		out.MaskedPaths, out.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	if out.Privileged {
		out.MaskedPaths, out.ReadonlyPaths = nil, nil
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
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

// seccomp says what is asked for in so many words: unset would be unconfined.
func seccomp(pod *corev1.Pod, c *corev1.Container, dir string) *cri.SecurityProfile {
	var p *corev1.SeccompProfile
	if psc := pod.Spec.SecurityContext; psc != nil {
		p = psc.SeccompProfile
	}
	if sc := c.SecurityContext; sc != nil && sc.SeccompProfile != nil {
		p = sc.SeccompProfile
	}
	out := &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	if p == nil || Privileged(c) {
		return out
	}
	switch p.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		out.ProfileType = cri.SecurityProfile_RuntimeDefault
	case corev1.SeccompProfileTypeLocalhost:
		out.ProfileType = cri.SecurityProfile_Localhost
		if p.LocalhostProfile != nil {
			out.LocalhostRef = filepath.Join(dir, filepath.Clean("/"+*p.LocalhostProfile))
		}
	}
	return out
}

// maskedPaths are what a container must not see of the kernel, as in upstream's
// default proc mount.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
