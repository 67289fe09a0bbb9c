package security

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Host reads the security features of the machine.
type Host struct {
	Root string // parent of /sys; empty: /
}

func (h Host) path(name string) string { return filepath.Join("/", h.Root, name) }

// AppArmor reports whether the kernel enforces AppArmor's profiles.
func (h Host) AppArmor() bool {
	b, err := os.ReadFile(h.path("sys/module/apparmor/parameters/enabled"))
	return err == nil && strings.HasPrefix(string(b), "Y")
}

// SELinux reports whether SELinux is enabled in the kernel, enforcing or permissive.
func (h Host) SELinux() bool {
	_, err := os.Stat(h.path("sys/fs/selinux/enforce"))
	return err == nil
}

// loaded reports whether the kernel has loaded an AppArmor profile. It returns true if the list is not readable: then
// the runtime checks the profile.
func (h Host) loaded(profile string) bool {
	f, err := os.Open(h.path("sys/kernel/security/apparmor/profiles"))
	if err != nil {
		return true
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() { // such as "docker-default (enforce)"
		if name, _, _ := strings.Cut(lines.Text(), " ("); name == profile {
			return true
		}
	}
	return false
}

// AppArmorProfile returns the profile of a container: its own, that of the deprecated annotation, or the pod's; nil:
// the runtime's default.
func AppArmorProfile(pod *corev1.Pod, c *corev1.Container) (*corev1.AppArmorProfile, error) {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile, nil
	}
	if old, ok := pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; ok {
		return parseAnnotation(old)
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		return psc.AppArmorProfile, nil
	}
	return nil, nil
}

// parseAnnotation parses the value of the deprecated annotation.
func parseAnnotation(value string) (*corev1.AppArmorProfile, error) {
	switch name, local := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix); {
	case local && name != "":
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}, nil
	case value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}, nil
	case value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}, nil
	case value == "":
		return nil, nil
	}
	return nil, fmt.Errorf("invalid AppArmor profile name: %q", value)
}

// checkAppArmor returns an error if the container's AppArmor profile cannot be applied.
func (h Host) checkAppArmor(pod *corev1.Pod, c *corev1.Container) error {
	p, err := AppArmorProfile(pod, c)
	if err != nil || p == nil || p.Type == corev1.AppArmorProfileTypeUnconfined {
		return err
	}
	if !h.AppArmor() {
		return errors.New("AppArmor is not enabled on the host")
	}
	if p.Type == corev1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil && !h.loaded(*p.LocalhostProfile) {
		return fmt.Errorf("profile %q is not loaded", *p.LocalhostProfile)
	}
	return nil
}
