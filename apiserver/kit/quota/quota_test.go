package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
)

func now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func read[T client.Object](t *testing.T, into T, text string) T {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return into
}

func text(amounts corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		amount := amounts[name]
		parts = append(parts, fmt.Sprintf("%s=%s", name, amount.String()))
	}
	return strings.Join(parts, " ")
}

func TestOf(t *testing.T) {
	t.Parallel()
	pod := func(s string) client.Object { return read(t, new(corev1.Pod), s) }
	service := func(s string) client.Object { return read(t, new(corev1.Service), s) }
	claim := func(s string) client.Object { return read(t, new(corev1.PersistentVolumeClaim), s) }
	const ports = `ports: [{port: 1}, {port: 2, nodePort: 30000}]`
	const storage = `resources: {requests: {storage: 1Gi}}`
	for _, c := range []struct {
		resource string
		obj      client.Object
		want     string
	}{
		{"pods", pod(
			`{spec: {containers: [{resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: 1Gi}}}, ` +
				`{resources: {requests: {cpu: 500m, example.com/a: 2, hugepages-2Mi: 4Mi}}}]}}`),
			"count/pods=1 cpu=1500m hugepages-2Mi=4Mi limits.cpu=2 limits.memory=1Gi pods=1 requests.cpu=1500m " +
				"requests.example.com/a=2 requests.hugepages-2Mi=4Mi"},
		{"pods", pod(
			`{spec: {overhead: {cpu: 1}, initContainers: [{resources: {requests: {cpu: 3}}}], ` +
				`containers: [{resources: {requests: {cpu: 1}}}]}}`), "count/pods=1 cpu=4 pods=1 requests.cpu=4"},
		{"pods", pod(`{spec: {containers: [{resources: {requests: {cpu: 1}}}]}, status: {phase: Succeeded}}`),
			"count/pods=1"},
		{"pods", pod(`{spec: {resources: {requests: {cpu: 3}}, containers: [{resources: {requests: {cpu: 1}}}]}}`),
			"count/pods=1 cpu=3 pods=1 requests.cpu=3"},
		{"pods", pod(
			`{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}]}, status: {containerStatuses: [{name: a, ` +
				`allocatedResources: {cpu: 2}, resources: {requests: {cpu: 2}}}]}}`), "count/pods=1 cpu=2 pods=1 requests.cpu=2"},
		{"pods", pod(
			`{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}]}, status: {containerStatuses: [{name: a, ` +
				`allocatedResources: {cpu: 1}, resources: {requests: {cpu: 1}}}]}}`), "count/pods=1 cpu=1 pods=1 requests.cpu=1"},
		{"pods", pod(`{metadata: {deletionTimestamp: "2026-01-01T11:00:00Z", deletionGracePeriodSeconds: 30}}`),
			"count/pods=1"},
		{"pods", pod(`{metadata: {deletionTimestamp: "2026-01-01T12:00:10Z", deletionGracePeriodSeconds: 30}}`),
			"count/pods=1 pods=1"},
		{"services", service(`{spec: {` + ports + `}}`), "count/services=1 services=1"},
		{"services", service(`{spec: {type: NodePort, ` + ports + `}}`), "count/services=1 services=1 services.nodeports=2"},
		{"services", service(`{spec: {type: LoadBalancer, ` + ports + `}}`),
			"count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"},
		{"services", service(`{spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ` + ports + `}}`),
			"count/services=1 services=1 services.loadbalancers=1 services.nodeports=1"},
		{"persistentvolumeclaims", claim(`{spec: {` + storage + `}}`),
			"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=1Gi"},
		{"persistentvolumeclaims",
			claim(`{spec: {storageClassName: a, ` + storage + `}, status: {allocatedResources: {storage: 2Gi}}}`),
			"a.storageclass.storage.k8s.io/persistentvolumeclaims=1 a.storageclass.storage.k8s.io/requests.storage=2Gi " +
				"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2Gi"},
		{"secrets", new(corev1.Secret), "count/secrets=1 secrets=1"},
		{"serviceaccounts", new(corev1.ServiceAccount), "count/serviceaccounts=1"},
	} {
		gr := schema.GroupResource{Resource: c.resource}
		used := Of(gr, c.obj, nil, now())
		if got := text(used); got != c.want {
			t.Errorf("%v\ngot  %s\nwant %s", c.obj, got, c.want)
		}
		for name, amount := range used {
			if got := Of(gr, c.obj, corev1.ResourceList{name: {}, "other": {}}, now()); len(got) != 1 ||
				amount.Cmp(got[name]) != 0 {
				t.Errorf("%s alone: %s", name, text(got))
			}
			if !Names(gr, name) {
				t.Errorf("%s use %s, but Names does not report it", c.resource, name)
			}
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resource, group, name string
		want                  bool
	}{
		{"deployments", "apps", "count/deployments.apps", true},
		{"deployments", "apps", "count/deployments", false},
		{"secrets", "", "services", false},
		{"pods", "", "requests.storage", false},
		{"pods", "", "limits.storage", false},
		{"pods", "", "services", false},
		{"persistentvolumeclaims", "", "requests.cpu", false},
		{"services", "example.com", "services", false},
	} {
		if got := Names(schema.GroupResource{Group: c.group, Resource: c.resource},
			corev1.ResourceName(c.name)); got != c.want {
			t.Errorf("%s.%s of %s: %v", c.resource, c.group, c.name, got)
		}
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	const effort, deadline = `status: {qosClass: BestEffort}`, `spec: {activeDeadlineSeconds: 5}`
	const abroad = `spec: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, ` +
		`podAffinityTerm: {topologyKey: a, namespaces: [b]}}]}}}`
	const home = `spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}]}}}`
	by := func(operator, values string) string {
		return `scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: ` + operator + `, values: [` +
			values + `]}]}`
	}
	const high = `spec: {priorityClassName: high}`
	for _, c := range []struct {
		quota, pod string
		want       bool
	}{
		{``, effort, true},
		{`scopes: [BestEffort]`, effort, true}, {`scopes: [BestEffort]`, ``, false},
		{`scopes: [NotBestEffort]`, effort, false}, {`scopes: [NotBestEffort]`, ``, true},
		{`scopes: [Terminating]`, deadline, true}, {`scopes: [Terminating]`, ``, false},
		{`scopes: [NotTerminating]`, deadline, false}, {`scopes: [NotTerminating]`, ``, true},
		{`scopes: [BestEffort, Terminating]`, effort, false},
		{`scopes: [PriorityClass]`, high, true}, {`scopes: [PriorityClass]`, ``, false},
		{`scopes: [CrossNamespacePodAffinity]`, abroad, true}, {`scopes: [CrossNamespacePodAffinity]`, home, false},
		{by("In", "high"), high, true}, {by("In", "low"), high, false}, {by("In", "high"), ``, false},
		{by("NotIn", "high"), high, false}, {by("NotIn", "low"), high, true}, {by("NotIn", "low"), ``, true},
		{by("Exists", ""), high, true}, {by("DoesNotExist", ""), high, false}, {by("DoesNotExist", ""), ``, true},
	} {
		q := read(t, new(corev1.ResourceQuota), `{spec: {`+c.quota+`}}`)
		if got := Matches(&q.Spec, read(t, new(corev1.Pod), `{`+c.pod+`}`)); got != c.want {
			t.Errorf("%s and %s: %v", c.quota, c.pod, got)
		}
	}
	terminating := read(t, new(corev1.ResourceQuota), `{spec: {scopes: [Terminating]}}`)
	if Matches(&terminating.Spec, new(corev1.Secret)) {
		t.Error("a secret is in a scope of pods")
	}
	gold := read(t, new(corev1.ResourceQuota),
		`{spec: {scopeSelector: {matchExpressions: [{scopeName: VolumeAttributesClass, operator: In, values: [gold]}]}}}`)
	for spec, want := range map[string]bool{
		`{}`: false, `{spec: {volumeAttributesClassName: gold}}`: true,
		`{status: {currentVolumeAttributesClassName: gold}}`:                      true,
		`{status: {modifyVolumeStatus: {targetVolumeAttributesClassName: gold}}}`: true,
	} {
		if got := Matches(&gold.Spec, read(t, new(corev1.PersistentVolumeClaim), spec)); got != want {
			t.Errorf("%s: %v", spec, got)
		}
	}
}

func TestMust(t *testing.T) {
	t.Parallel()
	const two = `{spec: {initContainers: [{name: i}], containers: [{name: b}, {name: a, ` +
		`resources: {requests: {cpu: 1}}}]}}`
	for _, c := range []struct{ hard, pod, want string }{
		{`{requests.cpu: 1, limits.memory: 1}`, two, "must specify limits.memory for: a,b,i; requests.cpu for: b,i"},
		{`{pods: 1, requests.ephemeral-storage: 1}`, two, "<nil>"},
		{`{cpu: 1}`, `{spec: {resources: {requests: {cpu: 1}}, containers: [{name: a}]}}`, "<nil>"},
		{`{cpu: 1, memory: 1}`, `{spec: {resources: {requests: {cpu: 1}}, containers: [{name: a}]}}`,
			"must specify memory for: a"},
	} {
		q := read(t, new(corev1.ResourceQuota), `{spec: {hard: `+c.hard+`}}`)
		if got := fmt.Sprint(Must(q.Spec.Hard, read(t, new(corev1.Pod), c.pod))); got != c.want {
			t.Errorf("%s: got %s, want %s", c.hard, got, c.want)
		}
	}
}

func TestExceeded(t *testing.T) {
	t.Parallel()
	amounts := func(s string) corev1.ResourceList {
		return read(t, new(corev1.ResourceQuota), `{spec: {hard: `+s+`}}`).Spec.Hard
	}
	if got := text(Exceeded(amounts(`{a: 3, b: 1, c: 1}`), amounts(`{a: 1, b: 2}`))); got != "a=2 c=1" {
		t.Errorf("over: %s", got)
	}
	if Applies(schema.GroupResource{Resource: "events"}) ||
		Applies(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}) {
		t.Error("events are counted")
	}
}
