package registry_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
)

func TestHeadings(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"Pod":                     "Name|Ready|Status|Restarts|Age / IP|Node|Nominated Node|Readiness Gates",
		"ReplicaSet":              "Name|Desired|Current|Ready|Age / Containers|Images|Selector",
		"ReplicationController":   "Name|Desired|Current|Ready|Age / Containers|Images|Selector",
		"ControllerRevision":      "Name|Controller|Revision|Age / ",
		"DaemonSet":               "Name|Desired|Current|Ready|Up-to-date|Available|Node Selector|Age / Containers|Images|Selector",
		"Job":                     "Name|Status|Completions|Duration|Age / Containers|Images|Selector",
		"CronJob":                 "Name|Schedule|Timezone|Suspend|Active|Last Schedule|Age / Containers|Images|Selector",
		"HorizontalPodAutoscaler": "Name|Reference|Targets|MinPods|MaxPods|Replicas|Age / ",
		"PodDisruptionBudget":     "Name|Min Available|Max Unavailable|Allowed Disruptions|Age / ",
		"Deployment":              "Name|Ready|Up-to-date|Available|Age / Containers|Images|Selector",
		"StatefulSet":             "Name|Ready|Age / Containers|Images",
		"Node":                    "Name|Status|Roles|Age|Version / Internal-IP|External-IP|OS-Image|Kernel-Version|Container-Runtime",
		"Event":                   "Last Seen|Type|Reason|Object|Message / Subobject|Source|First Seen|Count|Name",
		"Namespace":               "Name|Status|Age / ",
		"ConfigMap":               "Name|Data|Age / ",
		"Secret":                  "Name|Type|Data|Age / ",
		"ServiceAccount":          "Name|Secrets|Age / ",
		"Lease":                   "Name|Holder|Age / ",
		"PriorityClass":           "Name|Value|Global-Default|Age|PreemptionPolicy / ",
	}
	got := map[string]string{}
	for _, r := range registry.Resources() {
		if _, here := want[r.Kind]; here { // other kinds are tested in their own packages
			got[r.Kind] = kindtest.Headings(r.Columns)
		}
		for _, c := range r.Columns {
			if (c.Name == "Name") != (c.Format == "name") {
				t.Errorf("%s: column %s has format %q", r.Kind, c.Name, c.Format)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPrintRows(t *testing.T) {
	t.Parallel()
	hour := metav1.NewTime(kindtest.Now().Add(-time.Hour)).Format(time.RFC3339)
	meta := "metadata: {name: x, creationTimestamp: '" + hour + "'}\n"
	for _, c := range []struct{ kind, obj, want string }{
		{"Pod", meta +
			"spec: {nodeName: n1, readinessGates: [{conditionType: a}, {conditionType: b}], containers: [{name: a}]}\n" +
			"status: {phase: Running, podIP: 1.2.3.4, podIPs: [{ip: 1.2.3.5}], conditions: [{type: a, status: 'True'}]}",
			"x|0/1|Running|0|60m|1.2.3.5|n1|<none>|1/2"},
		{"Pod", "{metadata: {name: x}}", "x|0/0||0|<unknown>|<none>|<none>|<none>|<none>"},
		{"ReplicaSet", meta +
			"spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: {spec: {containers: [{name: c, image: d}, " +
			"{name: e, image: f}]}}}\nstatus: {replicas: 2, readyReplicas: 1}",
			"x|3|2|1|60m|c,e|d,f|a=b"},
		{"Node", "metadata: {name: x, labels: {node-role.kubernetes.io/edge: '', kubernetes.io/role: box}}\n" +
			"spec: {unschedulable: true}\nstatus: {nodeInfo: {kubeletVersion: v1}, addresses: [{type: InternalIP, " +
			"address: 1.2.3.4}], conditions: [{type: Ready, status: 'True'}]}",
			"x|Ready,SchedulingDisabled|box,edge|<unknown>|v1|1.2.3.4|<none>|<unknown>|<unknown>|<unknown>"},
		{"Node", "status: {conditions: [{type: Ready, status: Unknown}]}",
			"|NotReady|<none>|<unknown>||<none>|<none>|<unknown>|<unknown>|<unknown>"},
		{"Node", "{}", "|Unknown|<none>|<unknown>||<none>|<none>|<unknown>|<unknown>|<unknown>"},
		{"Event", meta + "{}", ""},
		{"Namespace", meta + "status: {phase: Active}", "x|Active|60m"},
		{"ConfigMap", meta + "data: {a: b}\nbinaryData: {c: ZA==}", "x|2|60m"},
		{"Secret", meta + "type: Opaque\ndata: {a: Yg==}", "x|Opaque|1|60m"},
		{"ServiceAccount", meta, "x|0|60m"},
		{"Lease", meta + "spec: {holderIdentity: me}", "x|me|60m"},
		{"PriorityClass", meta + "value: 7", "x|7|false|60m|PreemptLowerPriority"},
	} {
		if c.kind == "Event" {
			c.obj = "{metadata: {name: x}, lastTimestamp: '" + hour +
				"', type: Normal, reason: Pulled, involvedObject: {kind: Pod, name: p, fieldPath: f}, " +
				"source: {component: agent, host: n1}, message: ' hi '}"
			c.want = "60m|Normal|Pulled|pod/p|f|agent, n1|hi|<unknown>|1|x"
		}
		r := resourceOf(t, c.kind)
		obj := r.New()
		if err := yaml.UnmarshalStrict([]byte(c.obj), obj); err != nil {
			t.Fatal(err)
		}
		if got := kindtest.Row(t, r.Columns, obj); got != c.want {
			t.Errorf("%s: got %s, want %s", c.kind, got, c.want)
		}
	}
}

func resourceOf(t *testing.T, name string) kind.Resource {
	t.Helper()
	for _, r := range registry.Resources() {
		if r.Kind == name {
			return r
		}
	}
	t.Fatalf("no kind %s", name)
	return kind.Resource{}
}
