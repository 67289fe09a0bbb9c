package registry_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
	"monopod/store"
)

const webSet = `{metadata: {name: x, labels: {own: label}}, spec: {replicas: 2, selector: {matchLabels: {a: b}}, ` +
	`template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: d}]}}}}`

func TestCreation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, obj, want string }{
		{"ReplicaSet", webSet, ""},
		{"ReplicaSet", `{}`,
			"spec.selector: Required value\nspec.template.metadata.labels: Invalid value\n" +
				"spec.template.spec.containers: Required value"},
		{"ReplicaSet", strings.Replace(webSet, "replicas: 2", "replicas: -1, minReadySeconds: -1", 1),
			"spec.replicas: Invalid value\nspec.minReadySeconds: Invalid value"},
		{"ReplicaSet", strings.Replace(webSet, "labels: {a: b}", "labels: {a: c}", 1),
			"spec.template.metadata.labels: Invalid value"},
		{"ReplicaSet", strings.Replace(webSet, "selector: {matchLabels: {a: b}}", "selector: {}", 1),
			"spec.selector: Invalid value"},
		{"ReplicaSet",
			strings.Replace(webSet, "spec: {containers", "spec: {restartPolicy: Never, activeDeadlineSeconds: 1, containers", 1),
			"spec.template.spec.restartPolicy: Unsupported value\nspec.template.spec.activeDeadlineSeconds: Forbidden"},
		{"ReplicaSet", strings.Replace(webSet, "image: d", "image: ''", 1),
			"spec.template.spec.containers[0].image: Required value"},
		{"ConfigMap", `{data: {a.b-c_D: x}, binaryData: {e: AA==}}`, ""},
		{"ConfigMap", `{data: {"a b": x, c: y}, binaryData: {c: AA==, "..": AA==}}`,
			"data[a b]: Invalid value\ndata[c]: Invalid value\nbinaryData[..]: Invalid value"},
		{"ConfigMap", `{data: {a: "` + strings.Repeat("x", 1<<20+1) + `"}}`, "[]: Too long"},
		{"Secret", `{stringData: {a: b}}`, ""},
		{"Secret", `{data: {"a/b": AA==}}`, "data[a/b]: Invalid value"},
		{"Secret", `{type: kubernetes.io/tls}`, "data[tls.crt]: Required value\ndata[tls.key]: Required value"},
		{"Secret", `{type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: "{"}}`,
			"data[.dockerconfigjson]: Invalid value"},
		{"Secret", `{type: kubernetes.io/dockercfg}`, "data[.dockercfg]: Required value"},
		{"Secret", `{type: kubernetes.io/basic-auth}`, "data[username]: Required value\ndata[password]: Required value"},
		{"Secret", `{type: kubernetes.io/basic-auth, stringData: {username: a}}`, ""},
		{"Secret", `{type: kubernetes.io/ssh-auth}`, "data[ssh-privatekey]: Required value"},
		{"Secret", `{type: kubernetes.io/service-account-token}`,
			"metadata.annotations[kubernetes.io/service-account.name]: Required value"},
		{"ServiceAccount", `{}`, ""},
		{"Lease", `{spec: {leaseDurationSeconds: 0, leaseTransitions: -1, preferredHolder: x}}`,
			"spec.leaseDurationSeconds: Invalid value\nspec.leaseTransitions: Invalid value\nspec.preferredHolder: Forbidden"},
		{"Lease", `{spec: {holderIdentity: "", leaseDurationSeconds: 40}}`, ""},
		{"PriorityClass", `{metadata: {name: a}, value: 1000000000}`, ""},
		{"PriorityClass", `{metadata: {name: a}, value: 1000000001, preemptionPolicy: Maybe}`,
			"value: Forbidden\npreemptionPolicy: Unsupported value"},
		{"PriorityClass", `{metadata: {name: system-a}, value: 1}`, "metadata.name: Forbidden"},
		{"PriorityClass", `{metadata: {name: system-node-critical}, value: 2000001000}`, ""},
		{"Namespace", `{metadata: {name: a}}`, ""},
		{"Namespace", `{metadata: {name: a}, spec: {finalizers: [nodomain]}}`, "spec.finalizers[0]: Invalid value"},
		{"Node", `{spec: {podCIDR: 10.0.0.0/24, taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoExecute}]}, ` +
			`status: {capacity: {cpu: 1, pods: 110}}}`, ""},
		{"Node", `{spec: {podCIDRs: [x], taints: [{effect: Never}, {key: a, effect: NoSchedule}, {key: a, ` +
			`effect: NoSchedule}]}, status: {capacity: {cpu: -1}, allocatable: {}}}`,
			"spec.taints[0].key: Invalid value\nspec.taints[0].key: Invalid value\nspec.taints[0].effect: Unsupported value\n" +
				"spec.taints[2]: Duplicate value\nspec.podCIDRs[0]: Invalid value\nstatus.capacity[cpu]: Invalid value"},
		{"Event", `{metadata: {namespace: a}, involvedObject: {namespace: a}}`, ""},
		{"Event", `{metadata: {namespace: default}, involvedObject: {kind: Node}}`, ""},
		{"Event", `{metadata: {namespace: a}, involvedObject: {namespace: b}}`, "involvedObject.namespace: Invalid value"},
		{"Event", `{metadata: {namespace: a}, involvedObject: {kind: Node}}`, "involvedObject.namespace: Invalid value"},
		{"Event", `{metadata: {namespace: a}, involvedObject: {namespace: a}, eventTime: "2026-01-01T00:00:00.000000Z"}`,
			"reportingComponent: Required value\nreportingComponent: Invalid value\nreportingComponent: Invalid value\n" +
				"reportingInstance: Required value\naction: Required value\nreason: Required value"},
	} {
		name := c.kind + " " + c.obj[:min(len(c.obj), 80)]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := resourceOf(t, c.kind)
			kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, c.obj), nil, ""), c.want)
		})
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, old, next, want string }{
		{"ReplicaSet", webSet, strings.ReplaceAll(webSet, "{a: b}", "{a: c}"), "spec.selector: Invalid value"},
		{"ConfigMap", `{immutable: true, data: {a: b}}`, `{immutable: true, data: {a: b}}`, ""},
		{"ConfigMap", `{immutable: true, data: {a: b}}`, `{data: {a: c}, binaryData: {b: AA==}}`,
			"immutable: Forbidden\ndata: Forbidden\nbinaryData: Forbidden"},
		{"Secret", `{type: a, data: {a: AA==}}`, `{type: b}`, "type: Invalid value"},
		{"Secret", `{immutable: true, data: {a: AA==}}`, `{immutable: true, data: {a: AQ==}}`, "data: Forbidden"},
		{"PriorityClass", `{metadata: {name: a}, value: 1}`, `{metadata: {name: a}, value: 2, preemptionPolicy: Never}`,
			"value: Forbidden\npreemptionPolicy: Invalid value"},
		{"Node", `{spec: {podCIDR: 10.0.0.0/24, providerID: a}}`, `{spec: {podCIDR: 10.1.0.0/24, providerID: b}}`,
			"spec.podCIDRs: Forbidden\nspec.providerID: Forbidden"},
		{"Node", `{}`, `{spec: {podCIDR: 10.1.0.0/24, providerID: b, unschedulable: true}}`, ""},
	} {
		r := resourceOf(t, c.kind)
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, c.next), kindtest.Create(t, r, c.old), ""), c.want)
	}
}

func TestReplicaSetStatus(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "ReplicaSet")
	old := kindtest.Create(t, r, webSet)
	next := old.DeepCopyObject().(*appsv1.ReplicaSet)
	next.Spec.Replicas = new(int32(9))
	next.Status = appsv1.ReplicaSetStatus{Replicas: 1, ReadyReplicas: 2, AvailableReplicas: 3}
	r.Prepare(next, old, "status")
	if *next.Spec.Replicas != 2 || next.Generation != 1 {
		t.Errorf("a status write changed the spec: %v, generation %d", next.Spec, next.Generation)
	}
	kindtest.WantErrors(t, r.Validate(next, old, "status"),
		"status.readyReplicas: Invalid value", "status.availableReplicas: Invalid value",
		"status.availableReplicas: Invalid value")
}

func TestScale(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "ReplicaSet")
	rs := kindtest.Create(t, r, webSet).(*appsv1.ReplicaSet)
	rs.ResourceVersion, rs.Status.Replicas = "7", 1
	as := r.Subresource("scale").Scale
	scale := as.Of(rs)
	if scale.Name != "x" || scale.ResourceVersion != "7" || scale.Spec.Replicas != 2 || scale.Status.Replicas != 1 ||
		scale.Status.Selector != "a=b" || scale.Kind != "Scale" {
		t.Errorf("got %+v", scale)
	}
	next := rs.DeepCopy()
	scale.Spec.Replicas = 5
	as.Set(next, scale)
	r.Prepare(next, rs, "")
	if *next.Spec.Replicas != 5 || next.Generation != 2 || next.Status.Replicas != 1 {
		t.Errorf("got %d replicas at generation %d", *next.Spec.Replicas, next.Generation)
	}
}

func TestReplicaSetDefault(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "ReplicaSet")
	rs := kindtest.Create(t, r, strings.Replace(webSet, "replicas: 2, ", "", 1)).(*appsv1.ReplicaSet)
	pod := &rs.Spec.Template.Spec
	if *rs.Spec.Replicas != 1 || pod.RestartPolicy != "Always" || pod.Containers[0].ImagePullPolicy != "Always" ||
		rs.Generation != 1 {
		t.Errorf("got %+v", rs.Spec)
	}
	if len(pod.Tolerations) != 0 || pod.ServiceAccountName != "" || pod.EnableServiceLinks != nil {
		t.Errorf("a template got defaults of pods: %+v", pod)
	}
}

func TestNamespaceLife(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "Namespace")
	ns := kindtest.Create(t, r, `{metadata: {name: a}, status: {phase: Terminating}}`).(*corev1.Namespace)
	if ns.Status.Phase != corev1.NamespaceActive || ns.Labels[corev1.LabelMetadataName] != "a" || !r.BlocksDeletion(ns) {
		t.Fatalf("got %+v", ns)
	}
	dying := ns.DeepCopy()
	dying.DeletionTimestamp = new(metav1.NewTime(kindtest.Now()))
	r.Prepare(dying, ns, "delete")
	if dying.Status.Phase != corev1.NamespaceTerminating || !r.BlocksDeletion(dying) {
		t.Fatalf("got %+v", dying)
	}
	kindtest.WantErrors(t, r.Validate(dying, ns, "status"))
	empty := dying.DeepCopy()
	empty.Spec.Finalizers = nil
	r.Prepare(empty, dying, "")
	if !r.BlocksDeletion(empty) {
		t.Error("an update removed the finalizer")
	}
	empty.Spec.Finalizers = nil
	r.Prepare(empty, dying, "finalize")
	if r.BlocksDeletion(empty) {
		t.Error("finalize did not remove the finalizer")
	}
	back := dying.DeepCopy()
	back.Status.Phase = corev1.NamespaceActive
	kindtest.WantErrors(t, r.Validate(back, dying, "status"), "status.phase: Invalid value")
}

func TestNodeDurability(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True",
		LastHeartbeatTime: metav1.NewTime(kindtest.Now())}}}}
	node.ResourceVersion = "1"
	beat := node.DeepCopy()
	beat.ResourceVersion = "2"
	beat.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(kindtest.Now().Add(time.Minute))
	down := beat.DeepCopy()
	down.Status.Conditions[0].Status = "False"
	for name, c := range map[string]struct {
		cur, next kind.Object
		want      store.Durability
	}{
		"created": {nil, node, store.Durable}, "removed": {node, nil, store.Durable},
		"heartbeat": {node, beat, store.Volatile}, "not ready": {node, down, store.Durable},
	} {
		if got := resourceOf(t, "Node").Durability(c.cur, c.next); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if node.Status.Conditions[0].LastHeartbeatTime.IsZero() || node.ResourceVersion != "1" {
		t.Error("the shared node was changed")
	}
}

func TestNodeStatusAndSpecApart(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "Node")
	old := kindtest.Create(t, r, `{status: {capacity: {cpu: 1}}}`).(*corev1.Node)
	if old.Status.Allocatable.Cpu().String() != "1" {
		t.Errorf("allocatable %v, want the capacity", old.Status.Allocatable)
	}
	next := old.DeepCopy()
	next.Spec.Unschedulable, next.Status.Phase = true, "x"
	spec, status := next.DeepCopy(), next.DeepCopy()
	r.Prepare(spec, old, "")
	r.Prepare(status, old, "status")
	if !spec.Spec.Unschedulable || spec.Status.Phase != "" || status.Spec.Unschedulable || status.Status.Phase != "x" {
		t.Errorf("got %+v and %+v", spec, status)
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ obj, field, want string }{
		"Pod":        {`{spec: {nodeName: n1}}`, "spec.nodeName", "n1"},
		"Node":       {`{spec: {unschedulable: true}}`, "spec.unschedulable", "true"},
		"Namespace":  {`{}`, "status.phase", "Active"},
		"Secret":     {`{}`, "type", "Opaque"},
		"Event":      {`{involvedObject: {uid: u}}`, "involvedObject.uid", "u"},
		"ReplicaSet": {webSet, "status.replicas", "0"},
	} {
		r := resourceOf(t, name)
		if got := r.Fields(kindtest.Create(t, r, c.obj))[c.field]; got != c.want {
			t.Errorf("%s %s: %q, want %q", name, c.field, got, c.want)
		}
		if _, known := r.Fields(r.New())[c.field]; !known {
			t.Errorf("%s: an empty object lacks the field %s", name, c.field)
		}
	}
}

func TestSecretStringData(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "Secret")
	secret := kindtest.Create(t, r, `{data: {a: AA==, b: AA==}, stringData: {a: new}}`).(*corev1.Secret)
	if string(secret.Data["a"]) != "new" || len(secret.Data) != 2 || secret.StringData != nil ||
		secret.Type != corev1.SecretTypeOpaque {
		t.Errorf("got %+v", secret)
	}
}
