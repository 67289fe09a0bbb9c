package security

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/pkg/cap"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Check returns why a container of the pod, of any type, cannot be created as specified. seccompDir contains the
// Localhost profiles.
func (h Host) Check(pod *corev1.Pod, c *corev1.Container, image *cri.Image, seccompDir string) error {
	if err := checkUser(pod, c, image); err != nil {
		return err
	}
	if err := checkCapabilities(c); err != nil {
		return err
	}
	if err := h.checkAppArmor(pod, c); err != nil {
		return fmt.Errorf("cannot enforce AppArmor: %w", err)
	}
	if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
		return errWindows
	}
	return checkSeccomp(Seccomp(pod, c, false), seccompDir)
}

// Seccomp returns the profile of a container: its own or the pod's. If neither is set, it returns RuntimeDefault with
// byDefault, and otherwise nil.
func Seccomp(pod *corev1.Pod, c *corev1.Container, byDefault bool) *corev1.SeccompProfile {
	if sc := c.SecurityContext; sc != nil && sc.SeccompProfile != nil {
		return sc.SeccompProfile
	}
	if psc := pod.Spec.SecurityContext; psc != nil && psc.SeccompProfile != nil {
		return psc.SeccompProfile
	}
	if byDefault {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return nil
}

// SeccompPath returns the file of a Localhost profile, which is always inside dir.
func SeccompPath(p *corev1.SeccompProfile, dir string) string {
	if p.LocalhostProfile == nil {
		return ""
	}
	return filepath.Join(dir, filepath.Clean("/"+*p.LocalhostProfile))
}

func checkSeccomp(p *corev1.SeccompProfile, dir string) error {
	if p == nil || p.Type != corev1.SeccompProfileTypeLocalhost {
		return nil
	}
	info, err := os.Stat(SeccompPath(p, dir))
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", SeccompPath(p, dir))
	}
	if err != nil {
		return fmt.Errorf("cannot load seccomp profile %q: %w", *p.LocalhostProfile, err)
	}
	return nil
}

// Capability returns the name in the form of runtimes: upper case, without CAP_.
func Capability(name corev1.Capability) string {
	return strings.TrimPrefix(strings.ToUpper(string(name)), "CAP_")
}

// checkCapabilities returns an error for unknown names, which a runtime would only log and ignore.
func checkCapabilities(c *corev1.Container) error {
	if c.SecurityContext == nil || c.SecurityContext.Capabilities == nil {
		return nil
	}
	known := cap.Known()
	for _, list := range [][]corev1.Capability{c.SecurityContext.Capabilities.Add, c.SecurityContext.Capabilities.Drop} {
		for _, name := range list {
			if short := Capability(name); short != "ALL" && !slices.Contains(known, "CAP_"+short) {
				return fmt.Errorf("unknown capability %q", name)
			}
		}
	}
	return nil
}
