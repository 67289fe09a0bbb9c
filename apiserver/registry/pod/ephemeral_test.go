package pod_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/kind/kindtest"
	"monopod/apiserver/registry/pod"
)

const running = `
metadata: {name: p, namespace: default, labels: {a: b}}
spec:
  initContainers: [{name: i, image: x}, {name: s, image: x, restartPolicy: Always, resources: {requests: {cpu: 1}}}]
  containers: [{name: c, image: x, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2}}}]
`

func TestEphemeralContainers(t *testing.T) {
	t.Parallel()
	r := pod.Resource()
	cur := kindtest.Create(t, r, running)
	cur.(*corev1.Pod).Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "old", Image: "x", ImagePullPolicy: corev1.PullAlways, TerminationMessagePath: "/dev/termination-log",
		TerminationMessagePolicy: corev1.TerminationMessageReadFile}}}
	const old = `{name: old, image: x}`
	for name, c := range map[string]struct {
		list string
		want []string
	}{
		"nothing new": {"[" + old + "]", nil},
		"added": {"[" + old + ", {name: new, image: z, command: [sh], stdin: true, tty: true, " +
			"targetContainerName: c}]", nil},
		"in another order": {"[{name: new, image: z}, " + old + "]", nil},
		"removed":          {"[]", []string{"spec.ephemeralContainers: Forbidden"}},
		"changed":          {"[{name: old, image: z}]", []string{"spec.ephemeralContainers: Forbidden"}},
		"a name twice": {"[" + old + ", {name: c, image: z}]",
			[]string{"spec.ephemeralContainers[1].name: Duplicate value"}},
		"no such target": {"[" + old + ", {name: new, image: z, targetContainerName: x}]",
			[]string{"spec.ephemeralContainers[1].targetContainerName: Not found"}},
		"target is ephemeral": {"[" + old + ", {name: new, image: z, targetContainerName: old}]",
			[]string{"spec.ephemeralContainers[1].targetContainerName: Not found"}},
		"no image": {"[" + old + ", {name: new}]", []string{"spec.ephemeralContainers[1].image: Required value"}},
		"forbidden fields": {"[" + old + ", {name: new, image: z, ports: [{containerPort: 1}], " +
			"resources: {limits: {cpu: 1}}, livenessProbe: {exec: {command: [a]}}, lifecycle: {preStop: {sleep: {seconds: 1}}}}]",
			[]string{"spec.ephemeralContainers[1].ports: Forbidden", "spec.ephemeralContainers[1].resources: Forbidden",
				"spec.ephemeralContainers[1].livenessProbe: Forbidden", "spec.ephemeralContainers[1].lifecycle: Forbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := kindtest.Update(t, r, cur, "metadata: {name: p, namespace: default, labels: {other: x}}\n"+
				"spec: {containers: [], ephemeralContainers: "+c.list+"}", "ephemeralcontainers")
			kindtest.WantErrors(t, kindtest.Validate(r, next, cur, "ephemeralcontainers"), c.want...)
			p := next.(*corev1.Pod)
			if len(p.Spec.Containers) != 1 || p.Labels["a"] != "b" {
				t.Error("other fields than the ephemeral containers changed")
			}
			if moved := p.Generation != cur.GetGeneration(); moved == (name == "nothing new") {
				t.Errorf("generation %d after %d", p.Generation, cur.GetGeneration())
			}
		})
	}
	mirror := cur.DeepCopyObject().(*corev1.Pod)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	kindtest.WantErrors(t, kindtest.Validate(r, mirror.DeepCopy(), mirror, "ephemeralcontainers"), "[]: Forbidden")
}

func TestResize(t *testing.T) {
	t.Parallel()
	r := pod.Resource()
	cur := kindtest.Create(t, r, running)
	const inits = `initContainers: [{name: i, image: x}, {name: s, image: x, restartPolicy: Always, ` +
		`resources: {requests: {cpu: 2}}}]`
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"increased": {inits + "\ncontainers: [{name: c, resources: {requests: {cpu: 3, memory: 2Gi}, " +
			"limits: {cpu: 4, memory: 2Gi}}}]", nil},
		"decreased": {inits + "\ncontainers: [{name: c, resources: {requests: {cpu: 1m, memory: 1Mi}, limits: {cpu: 1m}}}]",
			nil},
		"request removed": {inits + "\ncontainers: [{name: c, resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]",
			[]string{"spec.containers[0].resources.requests: Forbidden"}},
		"limit removed": {inits + "\ncontainers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]",
			[]string{"spec.containers[0].resources.limits: Forbidden"}},
		"request too large": {inits + "\ncontainers: [{name: c, resources: {requests: {cpu: 3, memory: 1Gi}, " +
			"limits: {cpu: 2}}}]", []string{"spec.containers[0].resources.requests: Invalid value"}},
		"other resources": {inits + "\ncontainers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi, " +
			"ephemeral-storage: 1Gi}, limits: {cpu: 2}}}]", []string{"spec.containers[0].resources: Forbidden"}},
		"another container": {inits + "\ncontainers: [{name: d, image: x}]", []string{"spec.containers: Forbidden"}},
		"plain init container": {"initContainers: [{name: i, resources: {requests: {cpu: 1}}}, {name: s, " +
			"resources: {requests: {cpu: 1}}}]\ncontainers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}, " +
			"limits: {cpu: 2}}}]",
			nil},
		"plain init container by a restart": {"initContainers: [{name: i, resizePolicy: [{resourceName: cpu, " +
			"restartPolicy: RestartContainer}], resources: {requests: {cpu: 1}}}, {name: s, " +
			"resources: {requests: {cpu: 1}}}]\ncontainers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}, " +
			"limits: {cpu: 2}}}]",
			[]string{"spec.initContainers[0]: Forbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := kindtest.Update(t, r, cur, "metadata: {name: p, namespace: default}\nspec:\n  "+indent(c.spec), "resize")
			kindtest.WantErrors(t, kindtest.Validate(r, next, cur, "resize"), c.want...)
			if len(c.want) == 0 && next.GetGeneration() != cur.GetGeneration()+1 {
				t.Errorf("generation %d after %d", next.GetGeneration(), cur.GetGeneration())
			}
		})
	}
	level := kindtest.Create(t, r, "metadata: {name: p, namespace: default}\n"+
		"spec: {resources: {requests: {cpu: 1}, limits: {cpu: 2, hugepages-2Mi: 2Mi}}, containers: [{name: c, image: x}]}")
	for resources, want := range map[string][]string{
		"resources: {requests: {cpu: 2}, limits: {cpu: 3, hugepages-2Mi: 2Mi}}, ":              nil,
		"resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: 1Gi, hugepages-2Mi: 2Mi}}, ": nil,
		"": {"spec: Invalid value", "spec.resources: Forbidden"},
		"resources: {requests: {cpu: 1}, limits: {hugepages-2Mi: 2Mi}}, ":         {"spec.resources.limits: Forbidden"},
		"resources: {requests: {cpu: 1}, limits: {cpu: 2, hugepages-2Mi: 4Mi}}, ": {"spec: Forbidden"},
	} {
		next := kindtest.Update(t, r, level, "metadata: {name: p, namespace: default}\nspec: {"+resources+
			"containers: [{name: c, image: x}]}", "resize")
		kindtest.WantErrors(t, kindtest.Validate(r, next, level, "resize"), want...)
		if len(want) == 0 && next.GetGeneration() != level.GetGeneration()+1 {
			t.Errorf("%s: generation %d after %d", resources, next.GetGeneration(), level.GetGeneration())
		}
	}
	guaranteed := kindtest.Create(t, r, "metadata: {name: p, namespace: default}\n"+
		"spec: {containers: [{name: c, image: x, resources: {limits: {cpu: 1, memory: 1Gi}}}]}")
	next := kindtest.Update(t, r, guaranteed,
		"metadata: {name: p, namespace: default}\nspec: {containers: [{name: c, resources: {limits: {cpu: 2, "+
			"memory: 1Gi}, requests: {cpu: 1, memory: 1Gi}}}]}", "resize")
	kindtest.WantErrors(t, kindtest.Validate(r, next, guaranteed, "resize"), "spec: Invalid value")
}

// indent puts each line below spec.
func indent(s string) string {
	out := ""
	for _, c := range s {
		out += string(c)
		if c == '\n' {
			out += "  "
		}
	}
	return out
}
