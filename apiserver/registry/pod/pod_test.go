package pod

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const defaultedPod = `
containers:
- image: nginx
  imagePullPolicy: Always
  livenessProbe: {failureThreshold: 3, httpGet: {path: /, port: 80, scheme: HTTP}, periodSeconds: 10, successThreshold: 1, timeoutSeconds: 1}
  name: a
  ports: [{containerPort: 80, hostPort: 80, protocol: TCP}]
  resources: {limits: {cpu: "1"}, requests: {cpu: "1"}}
  terminationMessagePath: /dev/termination-log
  terminationMessagePolicy: File
dnsPolicy: ClusterFirst
enableServiceLinks: true
hostNetwork: true
restartPolicy: Always
schedulerName: default-scheduler
securityContext: {}
terminationGracePeriodSeconds: 30
volumes:
- {emptyDir: {}, name: e}
- {configMap: {defaultMode: 420, name: c}, name: c}
- {hostPath: {path: /, type: ""}, name: h}
- name: p
  projected: {defaultMode: 420, sources: [{serviceAccountToken: {expirationSeconds: 3600, path: t}}, {downwardAPI: {items: [{fieldRef: {apiVersion: v1, fieldPath: metadata.name}, path: name}]}}]}
`

func TestPodDefault(t *testing.T) {
	t.Parallel()
	pod := parsePod(t, `
hostNetwork: true
containers: [{name: a, image: nginx, ports: [{containerPort: 80}], resources: {limits: {cpu: 1}}, livenessProbe: {httpGet: {port: 80}}}]
volumes:
- {name: e}
- {name: c, configMap: {name: c}}
- {name: h, hostPath: {path: /}}
- {name: p, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}
`)
	got, err := yaml.Marshal(pod.Spec)
	if err != nil {
		t.Fatal(err)
	}
	want, err := yaml.YAMLToJSON([]byte(defaultedPod))
	if err != nil {
		t.Fatal(err)
	}
	want, _ = yaml.JSONToYAML(want)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestPodDefaultKeepsSetFields(t *testing.T) {
	t.Parallel()
	pod := parsePod(t, `
serviceAccount: me
enableServiceLinks: false
tolerations: [{operator: Exists}]
containers: [{name: a, image: b, resources: {limits: {cpu: 2, memory: 1}, requests: {cpu: 1}}}]`)
	if len(pod.Spec.Tolerations) != 1 || pod.Spec.ServiceAccountName != "me" || *pod.Spec.EnableServiceLinks {
		t.Errorf("got %+v", pod.Spec)
	}
	requests := pod.Spec.Containers[0].Resources.Requests
	if requests.Cpu().String() != "1" || requests.Memory().String() != "1" {
		t.Errorf("requests %v, want the requested CPU and the memory limit", requests)
	}
}

func TestPodQOS(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]corev1.PodQOSClass{
		`containers: [{name: a, image: b}]`:                                                                                    "BestEffort",
		`containers: [{name: a, image: b, resources: {limits: {cpu: 1, memory: 1}}}]`:                                          "Guaranteed",
		`containers: [{name: a, image: b, resources: {limits: {cpu: 1}}}]`:                                                     "Burstable",
		`containers: [{name: a, image: b, resources: {limits: {cpu: 1, memory: 1}, requests: {cpu: 0}}}]`:                      "Burstable",
		`containers: [{name: a, image: b, resources: {limits: {cpu: 1, memory: 1}}}, {name: c, image: b}]`:                     "Burstable",
		`{initContainers: [{name: c, image: b}], containers: [{name: a, image: b, resources: {limits: {cpu: 1, memory: 1}}}]}`: "Burstable",
		`{resources: {limits: {cpu: 1, memory: 1}, requests: {cpu: 1, memory: 1}}, containers: [{name: a, image: b}]}`:         "Guaranteed",
		`containers: [{name: a, image: b, resources: {limits: {example.com/gpu: 1}}}]`:                                         "BestEffort",
		`containers: [{name: a, image: b, resources: {requests: {memory: 1}}}, {name: c, image: b, ` +
			`resources: {limits: {cpu: 1, memory: 1}}}]`: "Burstable",
	} {
		if got := parsePod(t, spec).Status.QOSClass; got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
}

func TestPodGrace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node  string
		phase corev1.PodPhase
		own   *int64
		asked *int64
		want  int64
	}{
		"of the spec":     {"n", "Running", new(int64(7)), nil, 7},
		"asked":           {"n", "Running", new(int64(7)), new(int64(3)), 3},
		"requested zero":  {"n", "Running", new(int64(7)), new(int64(0)), 0},
		"default":         {"n", "Running", nil, nil, 30},
		"negative":        {"n", "Running", new(int64(7)), new(int64(-5)), 1},
		"no node":         {"", "Pending", new(int64(7)), nil, 0},
		"failed":          {"n", "Failed", new(int64(7)), new(int64(9)), 0},
		"negative, ended": {"n", "Succeeded", nil, new(int64(-1)), 0},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: c.node, TerminationGracePeriodSeconds: c.own},
			Status: corev1.PodStatus{Phase: c.phase}}
		if got := podGrace(pod, c.asked); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestNegativeGracePeriod checks that a negative grace period is stored as 1, even of a pod that an earlier release
// stored, and that 0 remains 0.
func TestNegativeGracePeriod(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]int64{"-1": 1, "0": 0, "7": 7} {
		pod := parsePod(t, "{terminationGracePeriodSeconds: "+given+", containers: [{name: a, image: b}]}")
		if got := *pod.Spec.TerminationGracePeriodSeconds; got != want {
			t.Errorf("%s is stored as %d", given, got)
		}
	}
}

func TestBindPod(t *testing.T) {
	t.Parallel()
	pod := parsePod(t, "{schedulingGates: [{name: x/y}], containers: [{name: a, image: b}]}")
	if c := pod.Status.Conditions; len(c) != 1 || c[0].Reason != corev1.PodReasonSchedulingGated {
		t.Fatalf("a gated pod starts with %+v", c)
	}
	now := metav1.NewTime(time.Unix(1000, 0))
	for range 2 { // idempotent
		Bind(pod, "n1", now)
		want := []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Unix(1000, 0))}}
		if diff := cmp.Diff(want, pod.Status.Conditions); pod.Spec.NodeName != "n1" || diff != "" {
			t.Errorf("node %q, conditions (-want +got):\n%s", pod.Spec.NodeName, diff)
		}
		now = metav1.NewTime(time.Unix(2000, 0))
	}
}

// FuzzPodDefaultValidate checks that the defaults of any pod are stable, and that nothing panics.
func FuzzPodDefaultValidate(f *testing.F) {
	for _, seed := range []string{goodPod, defaultedPod, "{}", "containers: [{}]",
		"{volumes: [{}], ephemeralContainers: [{}], overhead: {cpu: 1n}}",
		"containers: [{livenessProbe: {}, readinessProbe: {grpc: {}}, lifecycle: {preStop: {}}, " +
			"env: [{valueFrom: {fieldRef: {}}}], envFrom: [{}]}]"} {
		data, err := yaml.YAMLToJSON([]byte(seed))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var pod corev1.Pod
		if json.Unmarshal(data, &pod.Spec) != nil {
			return
		}
		old := pod.DeepCopy()
		podPrepare(&pod, nil, "")
		podDefault(&pod)
		again := pod.DeepCopy()
		podDefault(again)
		if !equality.Semantic.DeepEqual(again, &pod) {
			t.Errorf("defaults are not stable:\n%s", cmp.Diff(pod.Spec, again.Spec))
		}
		podValidate(&pod, nil, "")
		podValidate(&pod, old, "")
		podValidate(&pod, old, "status")
		podFields(&pod)
		summarizePod(&pod)
	})
}
