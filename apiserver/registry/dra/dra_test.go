package dra

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// resourceOf returns a kind of the package.
func resourceOf(t *testing.T, name string) kind.Resource {
	t.Helper()
	all := Resources()
	i := slices.IndexFunc(all, func(r kind.Resource) bool { return r.Kind == name })
	if i < 0 {
		t.Fatalf("no kind %s", name)
	}
	return all[i]
}

// since is the time at which the tests write.
var since = metav1.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// object returns a new object of a kind with its defaults.
func object(t *testing.T, res kind.Resource, text string) kind.Object {
	t.Helper()
	obj := res.New()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	obj.SetName("a")
	if res.Default != nil {
		res.Default(obj)
	}
	if res.Stamp != nil {
		res.Stamp(obj, nil, since)
	}
	return obj
}

const (
	request = "{name: r, exactly: {deviceClassName: c}}"
	good    = "spec: {devices: {requests: [" + request + "]}}"
	nodes   = "spec: {driver: d.example.com, nodeName: node, pool: {name: p, resourceSliceCount: 1}, "
)

// claimed returns a claim with one request and this additional content of its devices.
func claimed(more string) string {
	return "spec: {devices: {requests: [" + request + "], " + more + "}}"
}

// exactly returns a claim with this request.
func exactly(more string) string {
	return "spec: {devices: {requests: [{name: r, exactly: {" + more + "}}]}}"
}

func TestValidation(t *testing.T) {
	t.Parallel()
	many := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for _, c := range []struct{ kind, text, want string }{
		{"ResourceClaim", good, ""},
		{"ResourceClaim", "spec: {devices: {}}", "spec.devices.requests: Required value"},
		{"ResourceClaim", "spec: {devices: {requests: " + many(33, "{name: r%d, exactly: {deviceClassName: c}}") + "}}",
			"spec.devices.requests: Too many: 33"},
		{"ResourceClaim", "spec: {devices: {requests: [" + request + "," + request + "]}}",
			"spec.devices.requests[1].name: Duplicate value"},
		{"ResourceClaim", "spec: {devices: {requests: [{name: R, exactly: {deviceClassName: c}}]}}",
			"spec.devices.requests[0].name: Invalid value"},
		{"ResourceClaim", "spec: {devices: {requests: [{exactly: {deviceClassName: c}}]}}",
			"spec.devices.requests[0].name: Required value"},
		{"ResourceClaim", "spec: {devices: {requests: [{name: r}]}}", "spec.devices.requests[0]: Required value"},
		{"ResourceClaim",
			"spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}, firstAvailable: [{name: s, " +
				"deviceClassName: c}]}]}}", "multiple fields are set"},
		{"ResourceClaim",
			"spec: {devices: {requests: [{name: r, firstAvailable: [{name: s, deviceClassName: c}, {name: t, " +
				"deviceClassName: d}]}], constraints: [{requests: [r/s], matchAttribute: a.example.com/b}]}}", ""},
		{"ResourceClaim",
			"spec: {devices: {requests: [{name: r, firstAvailable: [{name: s, deviceClassName: c}, {name: s, " +
				"deviceClassName: d}]}]}}", "spec.devices.requests[0].firstAvailable[1].name: Duplicate value"},
		{"ResourceClaim", "spec: {devices: {requests: [{name: r, firstAvailable: " +
			many(9, "{name: s%d, deviceClassName: c}") + "}]}}", "firstAvailable: Too many: 9"},
		{"ResourceClaim", exactly("selectors: []"), "exactly.deviceClassName: Required value"},
		{"ResourceClaim", exactly("deviceClassName: C"), "exactly.deviceClassName: Invalid value"},
		{"ResourceClaim", exactly("deviceClassName: c, allocationMode: Some"), "exactly.allocationMode: Unsupported value"},
		{"ResourceClaim", exactly("deviceClassName: c, allocationMode: All, count: 2"), "exactly.count: Invalid value"},
		{"ResourceClaim", exactly("deviceClassName: c, count: -1"), "exactly.count: Invalid value"},
		{"ResourceClaim", exactly("deviceClassName: c, selectors: [{}]"), "exactly.selectors[0].cel: Required value"},
		{"ResourceClaim", exactly("deviceClassName: c, selectors: [{cel: {expression: ''}}]"),
			"cel.expression: Required value"},
		{"ResourceClaim", exactly("deviceClassName: c, selectors: [{cel: {expression: 'device.driver =='}}]"),
			"cel.expression: Invalid value"},
		{"ResourceClaim", exactly("deviceClassName: c, selectors: [{cel: {expression: '1 + 1'}}]"), "must evaluate to bool"},
		{"ResourceClaim",
			exactly(`deviceClassName: c, selectors: [{cel: {expression: 'device.driver == "d" && ` +
				`device.attributes["d"].model == "x"'}}]`), ""},
		{"ResourceClaim", exactly("deviceClassName: c, selectors: [{cel: {expression: 'device.model'}}]"),
			"undefined field 'model'"},
		{"ResourceClaim",
			exactly("deviceClassName: c, selectors: [{cel: {expression: 'device.attributes.all(a, device.attributes.all(b, " +
				"device.attributes.all(c, device.attributes.all(d, a == b && c == d))))'}}]"),
			"cel.expression: Forbidden: too complex, exceeds cost limit"},
		{"ResourceClaim",
			exactly("deviceClassName: c, selectors: [{cel: {expression: '" + strings.Repeat("1", 10241) + "'}}]"),
			"cel.expression: Too long"},
		{"ResourceClaim", exactly("deviceClassName: c, tolerations: [{operator: Exists, value: x}]"),
			"tolerations[0].value: Invalid value"},
		{"ResourceClaim", exactly("deviceClassName: c, tolerations: [{operator: Equal}]"),
			"tolerations[0].key: Required value"},
		{"ResourceClaim", exactly("deviceClassName: c, tolerations: [{operator: Exists, effect: Never}]"),
			"tolerations[0].effect: Unsupported value"},
		{"ResourceClaim", claimed("constraints: [{requests: [x], matchAttribute: a.example.com/b}]"),
			"constraints[0].requests[0]: Invalid value"},
		{"ResourceClaim", claimed("constraints: [{requests: [r, r], matchAttribute: a.example.com/b}]"),
			"constraints[0].requests[1]: Duplicate value"},
		{"ResourceClaim", claimed("constraints: [{}]"), "constraints[0]: Required value"},
		{"ResourceClaim", claimed("constraints: [{matchAttribute: b}]"), "constraints[0].matchAttribute: Invalid value"},
		{"ResourceClaim", claimed("constraints: [{matchAttribute: a.example.com/}]"),
			"constraints[0].matchAttribute: Required value"},
		{"ResourceClaim", claimed("constraints: [{matchAttribute: 'a.example.com/b-c'}]"),
			"constraints[0].matchAttribute: Invalid value"},
		{"ResourceClaim", claimed("config: [{}]"), "config[0]: Required value"},
		{"ResourceClaim", claimed("config: [{opaque: {driver: D, parameters: {a: 1}}}]"),
			"config[0].opaque.driver: Invalid value"},
		{"ResourceClaim", claimed("config: [{opaque: {driver: d}}]"), "config[0].opaque.parameters: Required value"},
		{"ResourceClaim", claimed("config: [{opaque: {driver: d, parameters: [1]}}]"),
			"config[0].opaque.parameters: Invalid value"},
		{"ResourceClaim", claimed("config: [{opaque: {driver: d, parameters: {a: 1}}, requests: [x]}]"),
			"config[0].requests[0]: Invalid value"},
		{"ResourceClaim", claimed("config: [{opaque: {driver: d, parameters: {a: 1}}, requests: [r]}]"), ""},
		{"ResourceClaimTemplate", "spec: {" + good + "}", ""},
		{"ResourceClaimTemplate", "spec: {spec: {devices: {requests: [{name: r}]}}}",
			"spec.spec.devices.requests[0]: Required value"},
		{"DeviceClass", "spec: {}", ""},
		{"DeviceClass", "spec: {selectors: [{cel: {expression: 'true'}}], extendedResourceName: example.com/gpu}", ""},
		{"DeviceClass", "spec: {extendedResourceName: gpu}", "spec.extendedResourceName: Invalid value"},
		{"DeviceClass", "spec: {selectors: [{cel: {expression: '('}}]}", "spec.selectors[0].cel.expression: Invalid value"},
		{"DeviceClass", "spec: {selectors: " + many(33, "{cel: {expression: 'true'}}") + "}", "spec.selectors: Too many: 33"},
		{"ResourceSlice", nodes +
			"devices: [{name: a, attributes: {model: {string: x}, d.example.com/v: {version: 1.2.3}}, " +
			"capacity: {memory: {value: 1Gi}}}]}", ""},
		{"ResourceSlice", "spec: {driver: d, pool: {name: p, resourceSliceCount: 1}, allNodes: true}", ""},
		{"ResourceSlice", "spec: {driver: d, pool: {name: p, resourceSliceCount: 1}}", "spec: Required value"},
		{"ResourceSlice", "spec: {driver: d, pool: {name: p, resourceSliceCount: 1}, allNodes: true, nodeName: node}",
			"multiple fields are set"},
		{"ResourceSlice", "spec: {driver: d, pool: {name: p, resourceSliceCount: 1}, allNodes: false}",
			"spec.allNodes: Invalid value"},
		{"ResourceSlice", "spec: {driver: d, pool: {name: p, resourceSliceCount: 1}, nodeSelector: {nodeSelectorTerms: []}}",
			"exactly one node selector term"},
		{"ResourceSlice", "spec: {driver: '', pool: {name: p, resourceSliceCount: 1}, allNodes: true}",
			"spec.driver: Required value"},
		{"ResourceSlice", "spec: {driver: d, pool: {name: '', resourceSliceCount: 1}, allNodes: true}",
			"spec.pool.name: Required value"},
		{"ResourceSlice", "spec: {driver: d, pool: {name: 'p//q', resourceSliceCount: 1}, allNodes: true}",
			"spec.pool.name: Invalid value"},
		{"ResourceSlice", "spec: {driver: d, pool: {name: p}, allNodes: true}",
			"spec.pool.resourceSliceCount: Invalid value"},
		{"ResourceSlice", "spec: {driver: d, pool: {name: p, resourceSliceCount: 1, generation: -1}, allNodes: true}",
			"spec.pool.generation: Invalid value"},
		{"ResourceSlice", nodes + "devices: [{name: a}, {name: a}]}", "spec.devices[1].name: Duplicate value"},
		{"ResourceSlice", nodes + "devices: [{name: A}]}", "spec.devices[0].name: Invalid value"},
		{"ResourceSlice", nodes + "devices: " + many(129, "{name: a%d}") + "}", "spec.devices: Too many: 129"},
		{"ResourceSlice", nodes + "devices: " + many(65, "{name: a%d, taints: [{key: k, effect: NoSchedule}]}") + "}",
			"spec.devices: Too many: 65"},
		{"ResourceSlice", nodes + "devices: [{name: a, attributes: {model: {}}}]}", "attributes[model]: Invalid value"},
		{"ResourceSlice", nodes + "devices: [{name: a, attributes: {model: {string: x, int: 1}}}]}", "exactly one value"},
		{"ResourceSlice", nodes + "devices: [{name: a, attributes: {'a-b': {int: 1}}}]}", "attributes[a-b]: Invalid value"},
		{"ResourceSlice", nodes + "devices: [{name: a, attributes: {v: {version: '1'}}}]}", "semver.org"},
		{"ResourceSlice", nodes + "devices: [{name: a, attributes: {v: {string: " + strings.Repeat("x", 65) + "}}}]}",
			"Too long"},
		{"ResourceSlice", nodes + "devices: [{name: a, capacity: {m: {value: -1}}}]}", "capacity[m].value: Invalid value"},
		{"ResourceSlice", nodes + "devices: [{name: a, taints: [{effect: NoSchedule}]}]}", "taints[0].key: Invalid value"},
		{"ResourceSlice", nodes + "devices: [{name: a, taints: [{key: k, effect: Always}]}]}",
			"taints[0].effect: Unsupported value"},
		{"ResourceSlice", nodes +
			"devices: [{name: a, bindingConditions: [d.example.com/ready], bindingFailureConditions: [d.example.com/failed]}]}",
			""},
		{"ResourceSlice", nodes + "devices: [{name: a, bindingConditions: [a]}]}", "bindingFailureConditions: Invalid value"},
		{"ResourceSlice", nodes + "devices: [{name: a, bindingFailureConditions: [a]}]}", "bindingConditions: Invalid value"},
		{"ResourceSlice", nodes + "devices: [{name: a, bindingConditions: [a, a], bindingFailureConditions: [b]}]}",
			"bindingConditions[1]: Duplicate value"},
		{"ResourceSlice", nodes + "devices: [{name: a, bindingConditions: [a], bindingFailureConditions: [a]}]}",
			"bindingFailureConditions[0]: Invalid value"},
		{"ResourceSlice", nodes + "devices: [{name: a, bindingConditions: [a, b, c, d, e], bindingFailureConditions: [f]}]}",
			"bindingConditions: Too many: 5"},
		{"ResourceSlice", nodes + "devices: [{name: a, bindingConditions: ['a b'], bindingFailureConditions: [f]}]}",
			"bindingConditions[0]: Invalid value"},
		{"DeviceTaintRule", "spec: {deviceSelector: {driver: d, pool: p/q, device: g-1}, taint: {key: k, effect: NoExecute}}",
			""},
		{"DeviceTaintRule", "spec: {taint: {key: k, effect: None}}", ""},
		{"DeviceTaintRule", "spec: {deviceSelector: {driver: D}, taint: {key: k, effect: None}}",
			"spec.deviceSelector.driver: Invalid value"},
		{"DeviceTaintRule", "spec: {deviceSelector: {pool: ''}, taint: {key: k, effect: None}}",
			"spec.deviceSelector.pool: Required value"},
		{"DeviceTaintRule", "spec: {deviceSelector: {device: G}, taint: {key: k, effect: None}}",
			"spec.deviceSelector.device: Invalid value"},
		{"DeviceTaintRule", "spec: {taint: {effect: None}}", "spec.taint.key: Invalid value"},
		{"DeviceTaintRule", "spec: {taint: {key: k}}", "spec.taint.effect: Required value"},
		{"DeviceTaintRule", "spec: {taint: {key: k, value: 'a b', effect: Never}}", "spec.taint.effect: Unsupported value"},
		{"ResourceSlice", nodes + "devices: [{name: a, consumesCounters: [{counterSet: s}]}]}",
			"consumesCounters[0].counters: Required value"},
		{"ResourceSlice", nodes + "sharedCounters: [{name: S, counters: {c: {value: 1}}}]}",
			"sharedCounters[0].name: Invalid value"},
		{"ResourceSlice", nodes + "sharedCounters: [{name: s, counters: {c: {value: -1}}}]}",
			"counters[c].value: Invalid value"},
	} {
		res := resourceOf(t, c.kind)
		errs := fmt.Sprint(res.Validate(object(t, res, c.text), nil, ""))
		if (c.want == "") != (errs == "[]") || !strings.Contains(errs, c.want) {
			t.Errorf("%s %s: %s, want %q", c.kind, c.text, errs, c.want)
		}
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	const allocated = "status: {allocation: {devices: {results: [{request: r, driver: d, pool: p, device: x}]}}, "
	const other = "status: {allocation: {devices: {results: [{request: r, driver: d, pool: p, device: y}]}}}"
	reserved := func(uid string) string { return "reservedFor: [{resource: pods, name: p, uid: " + uid + "}]" }
	for name, c := range map[string]struct {
		kind, next, cur, sub, want string
		deleting                   bool
	}{
		"same":         {kind: "ResourceClaim", next: good, cur: good},
		"claim's spec": {kind: "ResourceClaim", next: exactly("deviceClassName: d"), cur: good, want: "spec: Invalid value"},
		"template's spec": {kind: "ResourceClaimTemplate", next: "spec: {" + exactly("deviceClassName: d") + "}",
			cur: "spec: {" + good + "}", want: "spec: Invalid value"},
		"slice's driver": {kind: "ResourceSlice", next: strings.Replace(nodes, "d.example.com", "e", 1) + "}",
			cur: nodes + "}", want: "spec.driver: Invalid value"},
		"slice's node": {kind: "ResourceSlice", next: strings.Replace(nodes, "nodeName: node", "nodeName: other",
			1) + "}", cur: nodes + "}", want: "spec.nodeName: Invalid value"},
		"slice's devices":     {kind: "ResourceSlice", next: nodes + "devices: [{name: a}]}", cur: nodes + "}"},
		"allocated, reserved": {kind: "ResourceClaim", next: allocated + reserved("u") + "}", sub: "status"},
		"reserved only": {kind: "ResourceClaim", next: "status: {" + reserved("u") + "}", sub: "status",
			want: "status.reservedFor: Forbidden"},
		"unknown request": {kind: "ResourceClaim", next: strings.Replace(allocated, "request: r", "request: x", 1) +
			"}", sub: "status", want: "results[0].request: Invalid value"},
		"another allocation": {kind: "ResourceClaim", next: other, cur: allocated + "}", sub: "status",
			want: "status.allocation: Invalid value"},
		"deallocated": {kind: "ResourceClaim", next: "status: {}", cur: allocated + "}", sub: "status"},
		"reserved while terminating": {kind: "ResourceClaim", next: allocated + reserved("u") + "}", cur: allocated + "}",
			sub: "status", deleting: true, want: "status.reservedFor: Forbidden"},
		"reserved before the deletion": {kind: "ResourceClaim", next: allocated + reserved("u") + "}",
			cur: allocated + reserved("u") + "}", sub: "status", deleting: true},
		"reserved twice": {kind: "ResourceClaim", next: allocated +
			"reservedFor: [{resource: pods, name: p, uid: u}, {resource: pods, name: p, uid: u}]}", sub: "status",
			want: "reservedFor[1].uid: Duplicate value"},
		"reserved for nothing": {kind: "ResourceClaim", next: allocated + "reservedFor: [{}]}", sub: "status",
			want: "reservedFor[0].resource: Required value"},
		"device status": {kind: "ResourceClaim", next: allocated +
			"devices: [{driver: d, pool: p, device: x, data: {a: 1}}]}", sub: "status"},
		"condition of a rule": {kind: "DeviceTaintRule", next: "status: {conditions: [{type: A}]}", cur: "spec: {}",
			sub: "status", want: "status.conditions[0].status: Required value"},
		"status of another device": {kind: "ResourceClaim", next: allocated + "devices: [{driver: d, pool: p, device: y}]}",
			sub: "status", want: "status.devices[0]: Invalid value"},
		"status with invalid data": {kind: "ResourceClaim", next: allocated +
			"devices: [{driver: d, pool: p, device: x, data: 1}]}", sub: "status",
			want: "status.devices[0].data: Invalid value"},
	} {
		res := resourceOf(t, c.kind)
		if c.sub == "status" && c.kind == "ResourceClaim" {
			c.next, c.cur = good+"\n"+c.next, good+"\n"+c.cur
		}
		next, cur := object(t, res, c.next), object(t, res, c.cur)
		if c.deleting {
			now := metav1.Now()
			next.SetDeletionTimestamp(&now)
		}
		errs := fmt.Sprint(res.Validate(next, cur, c.sub))
		if (c.want == "") != (errs == "[]") || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %s, want %q", name, errs, c.want)
		}
	}
}

func TestDefaultsAndStatus(t *testing.T) {
	t.Parallel()
	res := resourceOf(t, "ResourceClaim")
	c := object(t, res, exactly("deviceClassName: c, tolerations: [{key: k}]")+
		"\nstatus: {reservedFor: [{resource: pods, name: p, uid: u}]}").(*claim)
	if e := c.Spec.Devices.Requests[0].Exactly; e.AllocationMode != "ExactCount" || e.Count != 1 ||
		e.Tolerations[0].Operator != "Equal" {
		t.Errorf("defaults %+v", e)
	}
	res.Prepare(c, nil, "")
	if len(c.Status.ReservedFor) > 0 {
		t.Error("a new claim has a status")
	}
	update := c.DeepCopy()
	update.Spec.Devices.Requests[0].Name = "x"
	res.Prepare(update, c, "status")
	if update.Spec.Devices.Requests[0].Name != "r" {
		t.Error("a write of the status changes the spec")
	}
	slices := resourceOf(t, "ResourceSlice")
	s := object(t, slices, nodes+"devices: [{name: a, taints: [{key: k, effect: NoSchedule}]}]}").(*slice)
	if s.Spec.Devices[0].Taints[0].TimeAdded == nil {
		t.Error("a taint has no time")
	}
	slices.Prepare(s, nil, "")
	changed := s.DeepCopy()
	changed.Spec.Pool.Generation++
	slices.Prepare(changed, s, "")
	if s.Generation != 1 || changed.Generation != 2 {
		t.Errorf("generations %d, then %d", s.Generation, changed.Generation)
	}
	if fields := slices.Fields(s); fields["spec.nodeName"] != "node" || fields["spec.driver"] != "d.example.com" ||
		fields["spec.pool.name"] != "p" {
		t.Errorf("fields %v", fields)
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	const allocation = "status: {allocation: {devices: {results: [{request: r, driver: d, pool: p, device: x}]}}"
	for _, c := range []struct{ kind, text, want string }{
		{"ResourceClaim", good, "a|pending|60m"},
		{"ResourceClaim", good + "\n" + allocation + "}", "a|allocated|60m"},
		{"ResourceClaim", good + "\n" + allocation + ", reservedFor: [{resource: pods, name: p, uid: u}]}",
			"a|allocated,reserved|60m"},
		{"ResourceSlice", nodes + "}", "a|node|d.example.com|p|60m"},
		{"ResourceSlice", "spec: {driver: d, pool: {name: p}}", "a|<unset>|d|p|60m"},
		{"DeviceClass", "spec: {}", "a|60m"},
		{"ResourceClaimTemplate", "spec: {" + good + "}", "a|60m"},
	} {
		res := resourceOf(t, c.kind)
		obj := object(t, res, c.text)
		now := time.Unix(1e9, 0)
		obj.SetCreationTimestamp(metav1.NewTime(now.Add(-time.Hour)))
		var cells []string
		for _, cell := range table.Row(res.Columns, obj, now, runtime.RawExtension{}).Cells {
			cells = append(cells, fmt.Sprint(cell))
		}
		if got := strings.Join(cells, "|"); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.kind, c.text, got, c.want)
		}
	}
}

// timeAdded of a taint changes with its effect, and a write of the status changes nothing else.
func TestTimeOfRules(t *testing.T) {
	t.Parallel()
	res := resourceOf(t, "DeviceTaintRule")
	cur := object(t, res, "spec: {taint: {key: k, effect: None, timeAdded: 2026-01-01T00:00:00Z}}").(*taintRule)
	res.Prepare(cur, nil, "")
	next := cur.DeepCopy()
	next.Spec.Taint.Value = "v"
	res.Prepare(next, cur, "")
	res.Stamp(next, cur, since)
	if next.Generation != 2 || !next.Spec.Taint.TimeAdded.Equal(cur.Spec.Taint.TimeAdded) {
		t.Errorf("another value: %+v", next)
	}
	next = cur.DeepCopy()
	next.Spec.Taint.Effect = "NoExecute"
	res.Prepare(next, cur, "")
	res.Stamp(next, cur, since)
	if !next.Spec.Taint.TimeAdded.Equal(&since) {
		t.Errorf("another effect: %+v", next)
	}
	next = cur.DeepCopy()
	next.Spec.Taint.Key, next.Status.Conditions = "other", []metav1.Condition{{Type: "A"}}
	res.Prepare(next, cur, "status")
	if next.Spec.Taint.Key != "k" || next.Generation != 1 || len(next.Status.Conditions) != 1 {
		t.Errorf("status: %+v", next)
	}
}
