package agent_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A container gets credentials for the API. The agent rotates them while it runs, and removes them with the pod.
func TestCredentials(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("p"))
		w.until(time.Second, "p", ready)
		p := w.get("p")
		mounts := p.Spec.Containers[0].VolumeMounts
		if len(mounts) != 1 || mounts[0].MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" || !mounts[0].ReadOnly {
			t.Fatalf("mounts %+v", mounts)
		}
		dir := filepath.Join(w.dir, "pods", string(p.UID), "volumes", "kubernetes.io~projected", mounts[0].Name)
		read := func(name string) string {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Error(err)
			}
			return string(b)
		}
		if read("token") != "default/p/1" || read("ca.crt") != "PEM" || read("namespace") != "default" {
			t.Errorf("token %q, ca.crt %q, namespace %q", read("token"), read("ca.crt"), read("namespace"))
		}
		w.after(46 * time.Minute)
		if got := read("token"); got != "default/p/1" {
			t.Errorf("the agent rotated the token too early: %s", got)
		}
		w.after(5 * time.Minute)
		if got := read("token"); got != "default/p/2" {
			t.Errorf("the token after 51 minutes: %s", got)
		}
		w.delete("p", 1)
		w.until(10*time.Second, "p", gone)
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("credentials left after the deletion: %v", err)
		}
	})
}

// Containers get environment variables with the addresses of Services.
func TestServiceVariables(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.77", Ports: []corev1.ServicePort{{Port: 77}}}})
		p := pod("p", "exit", "$(DB_SERVICE_PORT)")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		w.create(p)
		w.until(time.Second, "p", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if end := w.get("p").Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 77 {
			t.Errorf("terminated with %+v, want exit code 77", end)
		}
	})
}
