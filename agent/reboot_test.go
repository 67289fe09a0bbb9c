package agent_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/fake"
	"monopod/apiserver/kit/client"
)

// After a reboot there are no processes and no mounts; the runtime lists dead sandboxes and containers, or none.
func TestReboot(t *testing.T) {
	for name, off := range map[string]func(w *world){
		"remembered": func(w *world) {
			list, _ := w.rt.ListPodSandbox(w.Context(), nil)
			for _, s := range list {
				if err := w.rt.StopPodSandbox(w.Context(), s.Id); err != nil {
					w.Fatal(err)
				}
			}
		},
		"forgotten": func(w *world) {
			if err := w.rt.Close(); err != nil {
				w.Fatal(err)
			}
			w.rt = fake.New(fake.Config{Latency: latency, Fail: w.call})
			w.Cleanup(func() { w.rt.Close() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) { reboot(w, off) })
		})
	}
}

func reboot(w *world, off func(*world)) {
	once := func(name string, args ...string) *corev1.Pod {
		p := pod(name, args...)
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		return p
	}
	w.create(pod("runs"))
	w.create(once("finished", "exit", "0"))
	w.create(once("failed", "exit", "1"))
	w.create(once("once"))
	w.create(pod("ends", "-ignore-term"))
	for _, name := range []string{"runs", "once", "ends"} {
		w.until(time.Second, name, ready)
	}
	w.until(time.Second, "finished", phase(corev1.PodSucceeded))
	w.until(time.Second, "failed", phase(corev1.PodFailed))
	w.delete("ends", 30)
	w.after(time.Second)

	w.stop() // leaves all containers running
	off(w)
	w.forgetBoot()
	w.startAgent()

	w.until(2*time.Second, "runs", ready)
	w.until(2*time.Second, "ends", gone)
	w.until(2*time.Second, "once", phase(corev1.PodFailed))
	w.after(2 * time.Minute) // until garbage collection removes dead sandboxes
	p := w.get("runs")
	if got := p.Status.ContainerStatuses[0].RestartCount; got != 1 || !ready(p) {
		w.Errorf("runs: %+v", p.Status)
	}
	for name, want := range map[string]corev1.PodPhase{"finished": corev1.PodSucceeded, "failed": corev1.PodFailed,
		"once": corev1.PodFailed} {
		if p := w.get(name); p.Status.Phase != want {
			w.Errorf("%s: %+v", name, p.Status)
		}
	}
	// Garbage collection keeps a dead sandbox with a dead container whose exit is in the status.
	sandboxes, _ := w.rt.ListPodSandbox(w.Context(),
		&cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}})
	running, _ := w.rt.ListContainers(w.Context(),
		&cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}})
	if len(sandboxes) != 1 || len(running) != 1 {
		w.Errorf("sandboxes %v, running %v", sandboxes, running)
	}
	if !slices.ContainsFunc(w.recorded(), func(e string) bool {
		return e == "Warning n1 Rebooted: Node n1 has been rebooted, boot id: "+w.bootID()
	}) {
		w.Errorf("events: %v", w.recorded())
	}
	for _, name := range []string{"runs", "finished", "failed", "once"} {
		w.delete(name, 1)
	}
	w.after(5 * time.Second)
	w.nothingLeft()
}

// forgetBoot sets the node's boot ID in the API to an earlier one.
func (w *world) forgetBoot() {
	w.Helper()
	node := &corev1.Node{}
	node.Name = "n1"
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	_, err := client.Update(w.Context(), w.api, node, "status", func(n *corev1.Node) error {
		n.Status.NodeInfo.BootID = "an earlier one"
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) bootID() string {
	node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
	if err != nil {
		w.Fatal(err)
	}
	return node.Status.NodeInfo.BootID
}
