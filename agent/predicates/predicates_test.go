package predicates_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/predicates"
)

// node has two CPUs, ten pods, and a taint.
func node() *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Labels = "n1", map[string]string{"disk": "ssd"}
	n.Spec.Taints = []corev1.Taint{
		{Key: "out", Value: "yes", Effect: corev1.TaintEffectNoExecute}, {Key: "later", Effect: corev1.TaintEffectNoSchedule},
	}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"),
		corev1.ResourcePods: resource.MustParse("2")}
	return n
}

func pod(cpu string, ports ...corev1.ContainerPort) *corev1.Pod {
	p := &corev1.Pod{}
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Name: "c", Ports: ports}}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	return p
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	bound := func(ip string) corev1.ContainerPort {
		return corev1.ContainerPort{HostPort: 80, HostIP: ip, Protocol: corev1.ProtocolTCP}
	}
	with := func(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod { change(p); return p }
	tolerating := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "out", Value: "yes"}} }
	for name, c := range map[string]struct {
		ask    predicates.Handler
		pod    *corev1.Pod
		others []*corev1.Pod
		reason string // empty: the pod is admitted
	}{
		"this node":    {predicates.NodeName, pod(""), nil, ""},
		"another node": {predicates.NodeName, &corev1.Pod{}, nil, "NodeName"},
		"no affinity":  {predicates.Affinity, pod(""), nil, ""},
		"node selector": {predicates.Affinity,
			with(pod(""), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }), nil, "NodeAffinity"},
		"NoExecute":           {predicates.Taints, pod(""), nil, "TaintToleration"},
		"NoExecute tolerated": {predicates.Taints, with(pod(""), tolerating), nil, ""},
		"port free":           {predicates.Ports, pod("", bound("10.0.0.1")), []*corev1.Pod{pod("", bound("10.0.0.2"))}, ""},
		"port taken":          {predicates.Ports, pod("", bound("")), []*corev1.Pod{pod("", bound("10.0.0.2"))}, "NodePorts"},
		"cpu left":            {predicates.Resources, pod("1"), []*corev1.Pod{pod("1")}, ""},
		"cpu short":           {predicates.Resources, pod("1001m"), []*corev1.Pod{pod("1")}, "OutOfcpu"},
		"too many pods":       {predicates.Resources, pod(""), []*corev1.Pod{pod(""), pod("")}, "OutOfpods"},
	} {
		f := c.ask(c.pod, c.others, node())
		switch {
		case c.reason == "" && f != nil:
			t.Errorf("%s: %+v", name, f)
		case c.reason != "" && (f == nil || f.Reason != c.reason || !strings.HasPrefix(f.Message, "Pod was rejected: ")):
			t.Errorf("%s: %+v, want %s", name, f, c.reason)
		}
	}
}

// An extended resource that the node does not have is not checked.
func TestUnknownExtendedResource(t *testing.T) {
	t.Parallel()
	for name, refused := range map[corev1.ResourceName]bool{"example.com/thing": false, "hugepages-2Mi": true} {
		p := pod("")
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse("2Mi")}
		if f := predicates.Resources(p, nil, node()); (f != nil) != refused {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
