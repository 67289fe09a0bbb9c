package containers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/env"
	"monopod/agent/podapi/spec"
)

// MessagePath returns the path of an instance's termination message below dir, the pod's folder.
func MessagePath(dir, container string, attempt uint32) string {
	return filepath.Join(dir, fmt.Sprintf("message-%s-%d", container, attempt))
}

func (m *maker) messagePath(container string, attempt uint32) string {
	return MessagePath(m.volumes.Dir(), container, attempt)
}

// files writes the files that the agent provides to a container, and returns their mounts: the termination message, and
// /etc/hosts unless the pod mounts its own.
func (m *maker) files(pod *corev1.Pod, c *corev1.Container, attempt uint32, mounts []*cri.Mount,
	facts env.Facts) ([]*cri.Mount, error) {
	message := m.messagePath(c.Name, attempt)
	if err := os.MkdirAll(filepath.Dir(message), 0o750); err != nil {
		return nil, err
	}
	if err := writeFile(message, "", 0o666); err != nil {
		return nil, err
	}
	var out []*cri.Mount
	if c.TerminationMessagePath != "" {
		out = append(out, &cri.Mount{ContainerPath: c.TerminationMessagePath, HostPath: message})
	}
	for _, mount := range mounts {
		if filepath.Clean(mount.ContainerPath) == "/etc/hosts" {
			return out, nil
		}
	}
	var node string
	if pod.Spec.HostNetwork {
		b, err := os.ReadFile("/etc/hosts")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return out, err
		}
		node = string(b)
	}
	hosts := filepath.Join(m.volumes.Dir(), "etc-hosts")
	err := writeFile(hosts, spec.Hosts(pod, facts.PodIPs, m.node.Domain, node), 0o644)
	return append(out, &cri.Mount{ContainerPath: "/etc/hosts", HostPath: hosts}), err
}

// writeFile sets the file's mode regardless of the umask.
func writeFile(path, text string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
