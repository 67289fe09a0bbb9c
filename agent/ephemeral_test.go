package agent_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
)

// debug adds an ephemeral container that runs the sample program.
func (w *world) debug(name, container, target string, args ...string) {
	w.Helper()
	ref := client.Ref{Resource: client.Pods, Namespace: "default", Name: name, Subresource: "ephemeralcontainers"}
	_, err := w.api.Update(w.Context(), ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*corev1.Pod)
		next.Spec.EphemeralContainers = append(next.Spec.EphemeralContainers, corev1.EphemeralContainer{
			TargetContainerName:      target,
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: container, Image: "web:1", Args: args},
		})
		return next, nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

func ephemeral(p *corev1.Pod, name string) *corev1.ContainerStatus {
	i := slices.IndexFunc(p.Status.EphemeralContainerStatuses,
		func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Status.EphemeralContainerStatuses[i]
}

// An ephemeral container joins a running pod, runs once and does not affect the pod's phase.
func TestEphemeralContainer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("p"))
		w.until(time.Second, "p", ready)
		w.debug("p", "look", "c", "-listen", ":8081")
		w.until(time.Second, "p", func(p *corev1.Pod) bool {
			s := ephemeral(p, "look")
			return s != nil && s.State.Running != nil
		})
		if p := w.get("p"); !ready(p) || p.Status.ContainerStatuses[0].RestartCount != 0 || p.Status.ObservedGeneration != 2 {
			t.Errorf("the ephemeral container changed the status of the pod: %+v", p.Status)
		}
		w.debug("p", "fails", "", "exit", "3")
		w.after(5 * time.Minute)
		p := w.get("p")
		if s := ephemeral(p, "fails"); s == nil || s.State.Terminated == nil || s.State.Terminated.ExitCode != 3 ||
			s.RestartCount != 0 {
			t.Errorf("status of the ephemeral container that failed: %+v", s)
		}
		if s := ephemeral(p, "look"); s.State.Running == nil || !ready(p) {
			t.Errorf("status of the ephemeral container that runs: %+v", s)
		}
		w.stop()
		w.startAgent() // the next agent does not start the container again
		w.after(time.Minute)
		if s := ephemeral(w.get("p"), "fails"); s == nil || s.State.Terminated == nil || s.RestartCount != 0 {
			t.Errorf("after a restart of the agent: %+v", s)
		}
		w.delete("p", 1)
		w.until(10*time.Second, "p", gone)
		w.nothingLeft()
	})
}

// An ephemeral container waits until its target runs; its status says so.
func TestEphemeralContainerWithoutTarget(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("p")
		p.Spec.Containers = append(p.Spec.Containers,
			corev1.Container{Name: "done", Image: "web:1", Args: []string{"exit", "0"}})
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		w.create(p)
		w.after(time.Second)
		w.debug("p", "look", "done")
		w.after(time.Second)
		s := ephemeral(w.get("p"), "look")
		if s == nil || s.State.Waiting == nil || s.State.Waiting.Reason != "CreateContainerConfigError" ||
			!strings.Contains(s.State.Waiting.Message, `unable to find target container "done"`) {
			t.Errorf("status %+v", s)
		}
	})
}
