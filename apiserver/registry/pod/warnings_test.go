package pod

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	const term = "labelSelector: a null labelSelector results in matching no pod"
	for _, c := range []struct{ pod, want string }{
		{"{spec: {containers: [{name: a, image: b, env: [{name: x, value: y}, {name: x, value: $(x)z}], " +
			"ports: [{containerPort: 80}, {containerPort: 81}]}]}}", ""},
		{"{spec: {nodeSelector: {beta.kubernetes.io/arch: a, failure-domain.beta.kubernetes.io/zone: z}}}",
			"spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use \"kubernetes.io/arch\" instead\n" +
				"spec.nodeSelector[failure-domain.beta.kubernetes.io/zone]: deprecated since v1.17; use " +
				"\"topology.kubernetes.io/zone\" instead"},
		{"{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: " +
			"[{matchExpressions: [{key: beta.kubernetes.io/instance-type}]}]}}}}}",
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/instance-type is deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"},
		{"{spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{preference: " +
			"{matchExpressions: [{key: beta.kubernetes.io/os}]}}]}}}}",
			"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead"},
		{"{spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: k}]}, " +
			"podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{podAffinityTerm: {topologyKey: k}}]}}}}",
			"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]." + term +
				"\nspec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm." + term},
		{"{spec: {topologySpreadConstraints: [{topologyKey: failure-domain.beta.kubernetes.io/region}]}}",
			"spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/region is deprecated since " +
				"v1.17; use \"topology.kubernetes.io/region\" instead\nspec.topologySpreadConstraints[0]." + term},
		{"{metadata: {annotations: {scheduler.alpha.kubernetes.io/critical-pod: ''}}}",
			"metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the " +
				"\"priorityClassName\" field instead"},
		{"{metadata: {annotations: {security.alpha.kubernetes.io/sysctls: a, security.alpha.kubernetes.io/unsafe-sysctls: " +
			"b}}}",
			"metadata.annotations[security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; use the \"sysctls\" field " +
				"instead\nmetadata.annotations[security.alpha.kubernetes.io/unsafe-sysctls]: non-functional in v1.11+; use the " +
				"\"sysctls\" field instead"},
		{"{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: a, " +
			"container.seccomp.security.alpha.kubernetes.io/c: b}}, spec: {containers: [{name: c}]}}",
			"metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the " +
				"\"seccompProfile\" field instead\nmetadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: " +
				"non-functional in v1.27+; use the \"seccompProfile\" field instead"},
		{"{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/c: a}}, spec: {containers: [{name: c}]}}",
			""},
		{"{spec: {volumes: [{name: a, gitRepo: {repository: r}}, {name: b, rbd: {}}, {name: c, cephfs: {}}, {name: d, " +
			"glusterfs: {}}]}}",
			"spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+\n" +
				"spec.volumes[1].rbd: deprecated in v1.28, non-functional in v1.31+\n" +
				"spec.volumes[2].cephfs: deprecated in v1.28, non-functional in v1.31+\n" +
				"spec.volumes[3].glusterfs: deprecated in v1.25, non-functional in v1.26+"},
		{"{spec: {volumes: [{name: a, configMap: {name: m, items: [{key: k, path: p}, {key: l, path: p/q}]}}]}}",
			`volume "a" (ConfigMap "m"): overlapping paths: "p/q" with "p"`},
		{"{spec: {volumes: [{name: a, secret: {secretName: m, items: [{key: k, path: pq}, {key: l, path: p}]}}]}}", ""},
		{"{spec: {volumes: [{name: a, projected: {sources: [{}, {secret: {name: s, items: [{key: k, path: p}]}}, " +
			"{serviceAccountToken: {path: p}}]}}]}}",
			"volume \"a\" (Projected) has no sources provided\nvolume \"a\" (Projected ServiceAccountToken): overlapping " +
				"paths: \"p\" with \"p\""},
		{"{spec: {hostAliases: [{ip: 1.2.3.4}, {ip: 1.2.3.4}], imagePullSecrets: [{name: a}, {name: a}, {}]}}",
			"spec.hostAliases[1].ip: duplicate ip \"1.2.3.4\"\nspec.imagePullSecrets[1].name: duplicate name \"a\"\n" +
				"spec.imagePullSecrets[2].name: invalid empty name \"\""},
		{"{spec: {overhead: {memory: 100m}, containers: [{name: a, resources: {limits: {ephemeral-storage: 1500m}, " +
			"requests: {memory: 2500m}}}]}}",
			"spec.overhead[memory]: fractional byte value \"100m\" is invalid, must be an integer\n" +
				"spec.containers[0].resources.limits[ephemeral-storage]: fractional byte value \"1500m\" is invalid, " +
				"must be an integer\nspec.containers[0].resources.requests[memory]: fractional byte value \"2500m\" is invalid, " +
				"must be an integer"},
		{"{spec: {initContainers: [{name: i, env: [{name: x}, {name: x, valueFrom: {}}]}], containers: [{name: a, " +
			"env: [{name: x}, {name: x, value: $(x)}]}]}}",
			"spec.initContainers[0].env[1]: hides previous definition of \"x\", which may be dropped when using apply\n" +
				"spec.containers[0].env[1]: hides previous definition of \"x\", which may be dropped when using apply"},
		{"{spec: {containers: [{name: a, ports: [{containerPort: 80, hostPort: 1}, {containerPort: 80, hostPort: 2}]}, " +
			"{name: b, ports: [{containerPort: 80}]}]}}",
			"spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[0]\n" +
				"spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[1]"},
		{"{spec: {containers: [{name: a, ports: [{containerPort: 80, hostPort: 1}, {containerPort: 80, hostPort: 1, " +
			"hostIP: 1.2.3.4}]}]}}",
			"spec.containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]"},
		{"{spec: {terminationGracePeriodSeconds: -1}}",
			"spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"},
	} {
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(c.pod), &pod); err != nil {
			t.Fatalf("%s: %v", c.pod, err)
		}
		if diff := cmp.Diff(c.want, strings.Join(podWarnings(&pod, nil), "\n")); diff != "" {
			t.Errorf("%s: %s", c.pod, diff)
		}
		if got := podWarnings(&pod, &pod); got != nil {
			t.Errorf("an update warns %q", got)
		}
	}
}

// A template with AppArmor's annotation causes a warning, a pod does not.
func TestTemplateWarnings(t *testing.T) {
	t.Parallel()
	var template corev1.PodTemplateSpec
	template.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}
	template.Spec.Containers = []corev1.Container{{Name: "c"}}
	got := strings.Join(Warnings(field.NewPath("spec", "template"), &template.ObjectMeta, &template.Spec), "\n")
	want := `spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since ` +
		`v1.30; use the "appArmorProfile" field instead`
	if got != want {
		t.Errorf("got %s", got)
	}
}
