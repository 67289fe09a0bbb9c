package agent_test

import (
	"testing"
	"time"

	"monopod/agent"

	corev1 "k8s.io/api/core/v1"
)

func TestContainerRestartPolicy(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a", "exit", "42")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
		w.create(p)
		w.until(time.Minute, "a", restarts(2))
		if got := w.get("a").Status.Phase; got != corev1.PodRunning {
			t.Errorf("phase between restarts: %s", got)
		}

		q := pod("b", "exit", "3")
		q.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		w.create(q) // the pod's own policy is Always
		w.until(time.Minute, "b", func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodFailed })
		if !restarts(0)(w.get("b")) {
			t.Errorf("restarted: %v", w.get("b").Status)
		}
	})
}

func TestInitContainerRestartPolicy(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a", "serve")
		p.Spec.InitContainers = []corev1.Container{{
			Name: "i", Image: "web:1", Args: []string{"exit", "3"}, RestartPolicy: new(corev1.ContainerRestartPolicyNever),
		}}
		w.create(p)
		w.until(time.Minute, "a", func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodFailed })
	})
}

func TestHostnameTooLong(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop()
		w.adjust = func(c *agent.Config) { c.ClusterDomain = "cluster.local" }
		w.startAgent()
		p := pod("a-name-that-is-long-but-not-too-long-for-a-pod", "serve")
		p.Spec.SetHostnameAsFQDN, p.Spec.Subdomain = new(true), "sub"
		w.create(p)
		w.after(time.Second)
		if got := w.get(p.Name); ready(got) || !w.wasTold("Failed to construct FQDN from Pod hostname and cluster domain") {
			t.Errorf("%v, %v", got.Status, w.told())
		}
	})
}
