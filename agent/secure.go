package agent

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/status"
)

// admitSecurity refuses what this machine would otherwise silently leave out.
func (a *Agent) admitSecurity(pod *corev1.Pod, _ []*corev1.Pod, _ *corev1.Node) *status.Failure {
	return a.cfg.Machine.Refuse(pod, &a.cfg.Security)
}

// seccompDir is where Localhost profiles lie.
func (a *Agent) seccompDir() string { return filepath.Join(a.cfg.DataDir, "seccomp") }
