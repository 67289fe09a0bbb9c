package agent_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/fake"
	"monopod/apiserver/kit/client"
)

// onModern runs the agent on a runtime with containerd 2's features.
func (w *world) onModern() {
	w.stop()
	w.rt.Close()
	w.rt = fake.New(fake.Config{Latency: latency, Fail: w.call, Handlers: []*cri.RuntimeHandler{
		{Name: "runc", Features: &cri.RuntimeHandlerFeatures{UserNamespaces: true, RecursiveReadOnlyMounts: true}},
		{Features: &cri.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: "kata"},
	}, Features: &cri.RuntimeFeatures{SupplementalGroupsPolicy: true}})
	w.startAgent()
}

// usersOfPod returns the first host user of the user namespace of the sandbox and of the mounts of the container; 0:
// the host's user namespace.
func (w *world) usersOfPod(name string) (sandbox, mounts uint32) {
	w.Helper()
	uid := string(w.get(name).UID)
	for _, c := range w.containers() {
		if c.Labels["io.kubernetes.pod.uid"] != uid {
			continue
		}
		s, err := w.rt.PodSandboxStatus(w.Context(), c.PodSandboxId)
		if err != nil {
			w.Fatal(err)
		}
		made, err := w.rt.ContainerStatus(w.Context(), c.Id)
		if err != nil {
			w.Fatal(err)
		}
		if ids := s.Linux.Namespaces.Options.GetUsernsOptions().GetUids(); len(ids) == 1 {
			sandbox = ids[0].HostId
		}
		for _, m := range made.Mounts {
			if len(m.UidMappings) == 1 && len(m.GidMappings) == 1 {
				mounts = m.UidMappings[0].HostId
			}
		}
	}
	return sandbox, mounts
}

func ownUsers(name string) *corev1.Pod {
	p := pod(name, "serve")
	p.Spec.HostUsers = new(false)
	return p
}

func TestOwnUsers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.onModern()
		for _, p := range []*corev1.Pod{pod("shared", "serve"), ownUsers("a")} {
			w.create(p)
			w.until(time.Minute, p.Name, ready)
		}
		w.create(ownUsers("b"))
		w.until(time.Minute, "b", ready)
		want := func(name string, first uint32) {
			w.Helper()
			if sandbox, mounts := w.usersOfPod(name); sandbox != first || mounts != first {
				w.Errorf("%s: sandbox from %d, mounts from %d; not from %d", name, sandbox, mounts, first)
			}
		}
		want("shared", 0)
		want("a", 65536)
		want("b", 131072)
		w.stop()
		w.startAgent()
		w.create(ownUsers("c"))
		w.until(time.Minute, "c", ready)
		want("c", 196608)
		w.delete("a", 1)
		w.until(time.Minute, "a", func(p *corev1.Pod) bool { return p == nil })
		w.create(ownUsers("d"))
		w.until(time.Minute, "d", ready)
		want("d", 65536)
	})
}

func TestStrictGroups(t *testing.T) {
	inWorld(t, func(w *world) {
		strict := func(name string) *corev1.Pod {
			p := pod(name, "serve")
			p.Spec.SecurityContext = &corev1.PodSecurityContext{
				RunAsUser: new(int64(1)), RunAsGroup: new(int64(2)), SupplementalGroups: []int64{3},
				SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict),
			}
			return p
		}
		w.create(strict("a"))
		w.until(time.Minute, "a", func(p *corev1.Pod) bool {
			return p != nil && p.Status.Phase == corev1.PodFailed && p.Status.Reason == "SupplementalGroupsPolicyNotSupported"
		})
		w.onModern()
		w.create(strict("b"))
		w.until(time.Minute, "b", ready)
		if u := w.get("b").Status.ContainerStatuses[0].User; u == nil || u.Linux.UID != 1 || u.Linux.GID != 2 ||
			len(u.Linux.SupplementalGroups) != 2 {
			t.Errorf("%+v", u)
		}
	})
}

func TestRuntimeClass(t *testing.T) {
	inWorld(t, func(w *world) {
		w.onModern()
		class := func(name, handler string) *nodev1.RuntimeClass {
			return &nodev1.RuntimeClass{TypeMeta: metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"},
				ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
		}
		of := func(name, class string) *corev1.Pod {
			p := pod(name, "serve")
			p.Spec.RuntimeClassName = &class
			return p
		}
		w.create(class("strong", "kata"))
		w.create(of("a", "strong"))
		w.until(time.Minute, "a", ready)
		p := of("b", "strong")
		p.Spec.HostUsers = new(false)
		w.create(p)
		w.until(time.Minute, "b", func(p *corev1.Pod) bool {
			return p != nil && p.Status.Phase == corev1.PodFailed && p.Status.Reason == "UserNamespacesNotSupported"
		})
		// The test deletes a RuntimeClass before its pod has a sandbox, and creates it again.
		w.failing(func(op, _ string) error {
			if op == "RunPodSandbox" {
				return status.Error(codes.Unavailable, "away")
			}
			return nil
		})
		w.create(of("c", "strong"))
		w.after(100 * time.Millisecond)
		ref := client.Ref{Resource: client.RuntimeClasses, Name: "strong"}
		if _, err := w.api.Delete(w.Context(), ref, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.failing(func(string, string) error { return nil })
		before := len(w.watched())
		w.after(30 * time.Second)
		if changes := len(w.watched()) - before; changes > 20 { // two for each attempt, after 1, 2, 4, 8 and 10 s
			t.Errorf("the status changed %d times in 30 s: the write of a failed attempt triggers the next attempt", changes)
		}
		if s := w.get("c").Status.ContainerStatuses[0].State.Waiting; s == nil || s.Reason != "ContainerCreating" ||
			s.Message == "" {
			t.Errorf("%+v", s)
		}
		if !w.hasEvent(`Failed to create pod sandbox: runtimeclasses.node.k8s.io "strong" not found`) {
			t.Errorf("%v", w.recorded())
		}
		w.create(class("strong", "kata"))
		w.until(time.Minute, "c", ready)
	})
}

func TestNodeReportsRuntimeFeatures(t *testing.T) {
	inWorld(t, func(w *world) {
		w.onModern()
		w.after(time.Second)
		node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
		if err != nil {
			t.Fatal(err)
		}
		s := node.Status
		if len(s.RuntimeHandlers) != 3 || s.RuntimeHandlers[0].Name != "" || !*s.RuntimeHandlers[0].Features.UserNamespaces ||
			s.RuntimeHandlers[1].Name != "kata" || s.RuntimeHandlers[1].Features != nil ||
			!*s.RuntimeHandlers[2].Features.RecursiveReadOnlyMounts {
			t.Errorf("handlers %+v", s.RuntimeHandlers)
		}
		if s.Features == nil || !*s.Features.SupplementalGroupsPolicy {
			t.Errorf("features %+v", s.Features)
		}
	})
}
