package agent

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/admission/security"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/resources/userns"
	"monopod/apiserver/client"
)

// admitSecurity refuses what this machine would otherwise silently leave out.
func (a *Agent) admitSecurity(pod *corev1.Pod, _ []*corev1.Pod, _ *corev1.Node) *status.Failure {
	return a.cfg.Machine.Refuse(pod, &a.cfg.Security)
}

// seccompDir is where Localhost profiles lie.
func (a *Agent) seccompDir() string { return filepath.Join(a.cfg.DataDir, "seccomp") }

// handler is the runtime's name for what the pod's RuntimeClass says.
func (a *Agent) handler(ctx context.Context, pod *corev1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	class, err := client.Get[*nodev1.RuntimeClass](ctx, a.Client, "", *name)
	if err != nil {
		return "", err
	}
	return class.Handler, nil
}

// able says whether the runtime can do what the pod asks of it; one that it cannot
// fails. Only pods that ask make the runtime be asked.
func (w *worker) able(ctx context.Context) (bool, error) {
	if !security.Demanding(w.pod) {
		return true, nil
	}
	handler, err := w.a.handler(ctx, w.pod)
	if err != nil {
		return true, nil // told of when the sandbox is made
	}
	resp, err := w.a.Runtime.Status(ctx)
	if err != nil {
		return false, err
	}
	can := security.Abilities{Handlers: resp.RuntimeHandlers, Features: resp.Features}
	if w.failure = can.Check(w.pod, handler); w.failure != nil {
		w.a.event(w.pod, "", corev1.EventTypeWarning, w.failure.Reason, "%s", w.failure.Message)
		return false, nil
	}
	return true, nil
}

// newSandboxConfig is the config of a sandbox to be made, and its handler. The
// config is good for its log folder also where there is an error.
func (w *worker) newSandboxConfig(ctx context.Context, attempt uint32) (*cri.PodSandboxConfig, string, error) {
	err := spec.CheckHostname(w.pod, w.a.cfg.ClusterDomain)
	handler := ""
	if err == nil {
		handler, err = w.a.handler(ctx, w.pod)
	}
	if err == nil {
		err = w.takeUsers()
	}
	if err == nil && security.Labelled(w.pod) && !w.a.cfg.Machine.SELinux() {
		w.a.event(w.pod, "", corev1.EventTypeWarning, "SELinuxNotEnabled", "seLinuxOptions have no effect: SELinux is not enabled on the host")
	}
	return w.sandboxConfig(attempt), handler, err
}

// takeUsers finds out which of the host's users are the pod's.
func (w *worker) takeUsers() (err error) {
	if w.users == nil {
		w.users = userns.Shared()
		if security.OwnUsers(w.pod) {
			w.users, err = w.a.users.Get(w.uid)
		}
	}
	return err
}

// checkSecurity says why a container cannot be made as it asks.
func (w *worker) checkSecurity(c *corev1.Container, image *cri.Image) error {
	if err := w.takeUsers(); err != nil {
		return err
	}
	return w.a.cfg.Machine.Check(w.pod, c, image, w.a.seccompDir())
}

// blameClass shows in the status of a pod with a RuntimeClass why it has no
// sandbox: of that the class is the likeliest cause.
func (w *worker) blameClass(err error) {
	if name := w.pod.Spec.RuntimeClassName; name == nil || *name == "" {
		return
	}
	reason := "ContainerCreating"
	if len(w.pod.Spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	for _, list := range [][]corev1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			w.waiting[list[i].Name] = status.Waiting{Reason: reason, Message: fmt.Sprintf("Failed to create pod sandbox: %v", err)}
		}
	}
}
