package security

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrRoot means that a container with runAsNonRoot would run as root.
var ErrRoot = errors.New("container has runAsNonRoot and image will run as root")

// checkUser returns an error for a container with runAsNonRoot if its user, or the user of its image, is root or cannot
// be verified.
func checkUser(pod *corev1.Pod, c *corev1.Container, image *cri.Image) error {
	if !nonRoot(pod, c) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID), c.Name)
	if uid := RunAsUser(pod, c); uid != nil {
		if *uid == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
		}
		return nil
	}
	if uid := image.GetUid(); uid != nil && uid.Value != 0 {
		return nil
	}
	if name := image.GetUsername(); name != "" {
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s",
			name, where)
	}
	return fmt.Errorf("%w %s", ErrRoot, where)
}

func nonRoot(pod *corev1.Pod, c *corev1.Container) bool {
	if sc := c.SecurityContext; sc != nil && sc.RunAsNonRoot != nil {
		return *sc.RunAsNonRoot
	}
	psc := pod.Spec.SecurityContext
	return psc != nil && psc.RunAsNonRoot != nil && *psc.RunAsNonRoot
}

// RunAsUser returns the container's user; nil: its image's.
func RunAsUser(pod *corev1.Pod, c *corev1.Container) *int64 {
	if sc := c.SecurityContext; sc != nil && sc.RunAsUser != nil {
		return sc.RunAsUser
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		return psc.RunAsUser
	}
	return nil
}

// RunAsGroup returns the container's primary group; nil: its image's.
func RunAsGroup(pod *corev1.Pod, c *corev1.Container) *int64 {
	if sc := c.SecurityContext; sc != nil && sc.RunAsGroup != nil {
		return sc.RunAsGroup
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		return psc.RunAsGroup
	}
	return nil
}
