package registry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/table"
)

// printNow is when the tests print; objects name times before it.
func printNow() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// printRow is what kubectl shows of obj with -o wide, cells parted by "|".
func printRow(t *testing.T, columns []table.Column, obj Object) string {
	t.Helper()
	var cells []string
	for i, c := range columns {
		value := c.Cell(obj, printNow())
		if _, isInt := value.(int64); c.Type == "integer" && !isInt {
			t.Errorf("column %d (%s) is an integer but holds %T", i, c.Name, value)
		}
		cells = append(cells, fmt.Sprint(value))
	}
	return strings.Join(cells, "|")
}

func headings(columns []table.Column) string {
	var narrow, wide []string
	for _, c := range columns {
		if c.Priority == 0 {
			narrow = append(narrow, c.Name)
		} else {
			wide = append(wide, c.Name)
		}
	}
	return strings.Join(narrow, "|") + " / " + strings.Join(wide, "|")
}

func TestHeadings(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"Pod":            "Name|Ready|Status|Restarts|Age / IP|Node|Nominated Node|Readiness Gates",
		"ReplicaSet":     "Name|Desired|Current|Ready|Age / Containers|Images|Selector",
		"Node":           "Name|Status|Roles|Age|Version / Internal-IP|External-IP|OS-Image|Kernel-Version|Container-Runtime",
		"Event":          "Last Seen|Type|Reason|Object|Message / Subobject|Source|First Seen|Count|Name",
		"Namespace":      "Name|Status|Age / ",
		"ConfigMap":      "Name|Data|Age / ",
		"Secret":         "Name|Type|Data|Age / ",
		"ServiceAccount": "Name|Secrets|Age / ",
		"Lease":          "Name|Holder|Age / ",
		"PriorityClass":  "Name|Value|Global-Default|Age|PreemptionPolicy / ",
	}
	got := map[string]string{}
	for _, r := range Resources() {
		got[r.Kind] = headings(r.Columns)
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

func TestPrintPods(t *testing.T) {
	t.Parallel()
	const two = "spec: {nodeName: n1, containers: [{name: a}, {name: b}]}\n"
	const withInit = "spec: {initContainers: [{name: i}, {name: j}], containers: [{name: a}]}\n"
	const sidecar = "spec: {initContainers: [{name: s, restartPolicy: Always}], containers: [{name: a}]}\n"
	for name, c := range map[string]struct{ pod, want string }{
		"pending": {two + "status: {phase: Pending}", "0/2|Pending|0"},
		"creating": {two + "status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ContainerCreating}}}, {name: b, state: {waiting: {reason: ContainerCreating}}}]}",
			"0/2|ContainerCreating|0"},
		"running": {two + "status: {phase: Running, containerStatuses: [{name: a, ready: true, state: {running: {}}}, {name: b, ready: true, state: {running: {}}}]}",
			"2/2|Running|0"},
		"restarted": {two + "status: {phase: Running, containerStatuses: [{name: a, ready: true, restartCount: 3, state: {running: {}}, lastState: {terminated: {finishedAt: '2026-01-01T11:59:55Z'}}}, {name: b, state: {running: {}}}]}",
			"1/2|Running|3 (5s ago)"},
		"crash loop": {two + "status: {phase: Running, containerStatuses: [{name: a, restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}}, {name: b, ready: true, state: {running: {}}}]}",
			"1/2|CrashLoopBackOff|1"},
		"completed":           {two + "status: {phase: Succeeded, containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, state: {terminated: {reason: Completed}}}]}", "0/2|Completed|0"},
		"one completed":       {two + "status: {phase: Running, containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]}", "1/2|NotReady|0"},
		"one completed ready": {two + "status: {phase: Running, conditions: [{type: Ready, status: 'True'}], containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]}", "1/2|Running|0"},
		"error":               {two + "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {reason: Error, exitCode: 1}}}, {name: b, state: {terminated: {exitCode: 2}}}]}", "0/2|Error|0"},
		"exit code":           {two + "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 3}}}]}", "0/2|ExitCode:3|0"},
		"signal":              {two + "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 137, signal: 9}}}]}", "0/2|Signal:9|0"},
		"evicted":             {two + "status: {phase: Failed, reason: Evicted}", "0/2|Evicted|0"},
		"gated":               {two + "status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}", "0/2|SchedulingGated|0"},
		"terminating":         {"metadata: {deletionTimestamp: '2026-01-01T11:59:00Z'}\n" + two + "status: {phase: Running}", "0/2|Terminating|0"},
		"done, terminating":   {"metadata: {deletionTimestamp: '2026-01-01T11:59:00Z'}\n" + two + "status: {phase: Succeeded}", "0/2|Succeeded|0"},
		"node lost":           {"metadata: {deletionTimestamp: '2026-01-01T11:59:00Z'}\n" + two + "status: {phase: Running, reason: NodeLost}", "0/2|Unknown|0"},
		"first init":          {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {running: {}}}, {name: j, state: {waiting: {reason: PodInitializing}}}], containerStatuses: [{name: a, state: {waiting: {reason: PodInitializing}}}]}", "0/1|Init:0/2|0"},
		"second init":         {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 2, state: {terminated: {exitCode: 0, reason: Completed}}}, {name: j, state: {waiting: {reason: PodInitializing}}}]}", "0/1|Init:1/2|2"},
		"init fails":          {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 1, reason: Error}}}]}", "0/1|Init:Error|0"},
		"init exit code":      {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 1}}}]}", "0/1|Init:ExitCode:1|0"},
		"init loops":          {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 4, state: {waiting: {reason: CrashLoopBackOff}}}]}", "0/1|Init:CrashLoopBackOff|4"},
		"init through":        {withInit + "status: {phase: Running, initContainerStatuses: [{name: i, restartCount: 2, state: {terminated: {exitCode: 0}}}, {name: j, state: {terminated: {exitCode: 0}}}], containerStatuses: [{name: a, ready: true, state: {running: {}}}]}", "1/1|Running|0"},
		"sidecar":             {sidecar + "status: {phase: Running, initContainerStatuses: [{name: s, ready: true, started: true, restartCount: 1, state: {running: {}}}], containerStatuses: [{name: a, ready: true, state: {running: {}}}]}", "2/2|Running|1"},
		"sidecar starting":    {sidecar + "status: {phase: Pending, initContainerStatuses: [{name: s, started: false, state: {running: {}}}]}", "0/2|Init:0/1|0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict([]byte(c.pod), &pod); err != nil {
				t.Fatal(err)
			}
			got := printRow(t, podColumns()[1:4], &pod)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestPrintRows(t *testing.T) {
	t.Parallel()
	hour := metav1.NewTime(printNow().Add(-time.Hour)).Format(time.RFC3339)
	meta := "metadata: {name: x, creationTimestamp: '" + hour + "'}\n"
	for _, c := range []struct{ kind, obj, want string }{
		{"Pod", meta + "spec: {nodeName: n1, readinessGates: [{conditionType: a}, {conditionType: b}], containers: [{name: a}]}\nstatus: {phase: Running, podIP: 1.2.3.4, podIPs: [{ip: 1.2.3.5}], conditions: [{type: a, status: 'True'}]}",
			"x|0/1|Running|0|60m|1.2.3.5|n1|<none>|1/2"},
		{"Pod", "{metadata: {name: x}}", "x|0/0||0|<unknown>|<none>|<none>|<none>|<none>"},
		{"ReplicaSet", meta + "spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: {spec: {containers: [{name: c, image: d}, {name: e, image: f}]}}}\nstatus: {replicas: 2, readyReplicas: 1}",
			"x|3|2|1|60m|c,e|d,f|a=b"},
		{"Node", "metadata: {name: x, labels: {node-role.kubernetes.io/edge: '', kubernetes.io/role: box}}\nspec: {unschedulable: true}\nstatus: {nodeInfo: {kubeletVersion: v1}, addresses: [{type: InternalIP, address: 1.2.3.4}], conditions: [{type: Ready, status: 'True'}]}",
			"x|Ready,SchedulingDisabled|box,edge|<unknown>|v1|1.2.3.4|<none>|<unknown>|<unknown>|<unknown>"},
		{"Node", "status: {conditions: [{type: Ready, status: Unknown}]}", "|NotReady|<none>|<unknown>||<none>|<none>|<unknown>|<unknown>|<unknown>"},
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
			c.obj = "{metadata: {name: x}, lastTimestamp: '" + hour + "', type: Normal, reason: Pulled, involvedObject: {kind: Pod, name: p, fieldPath: f}, source: {component: agent, host: n1}, message: ' hi '}"
			c.want = "60m|Normal|Pulled|pod/p|f|agent, n1|hi|<unknown>|1|x"
		}
		r := resourceOf(t, c.kind)
		obj := r.New()
		if err := yaml.UnmarshalStrict([]byte(c.obj), obj); err != nil {
			t.Fatal(err)
		}
		if got := printRow(t, r.Columns, obj); got != c.want {
			t.Errorf("%s: got %s, want %s", c.kind, got, c.want)
		}
	}
}

func resourceOf(t *testing.T, kind string) Resource {
	t.Helper()
	for _, r := range Resources() {
		if r.Kind == kind {
			return r
		}
	}
	t.Fatalf("no kind %s", kind)
	return Resource{}
}
