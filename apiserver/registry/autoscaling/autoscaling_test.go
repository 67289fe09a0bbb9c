package autoscaling_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/autoscaling"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
)

const web = `{metadata: {name: x}, spec: {maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, ` +
	`name: d}}}`

// versions returns the stored kind and its view.
func versions() (v2, v1 kind.Resource) {
	all := autoscaling.Resources()
	return all[0], all[1]
}

func decode(t *testing.T, obj any, text string) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestBadAutoscalers(t *testing.T) {
	t.Parallel()
	metric := func(m string) string { return "maxReplicas: 5, metrics: [" + m + "]" }
	up := func(rules string) string { return "maxReplicas: 5, behavior: {scaleUp: " + rules + "}" }
	const cpu = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}"
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"maxReplicas: 5", "maxReplicas: 0", "spec.maxReplicas: Invalid value\nspec.maxReplicas: Invalid value"},
		{"maxReplicas: 5", "maxReplicas: 5, minReplicas: 6", "spec.maxReplicas: Invalid value"},
		{"maxReplicas: 5", "maxReplicas: 5, minReplicas: -1", "spec.minReplicas: Invalid value"},
		{"maxReplicas: 5", "maxReplicas: 5, minReplicas: 0", "spec.metrics: Forbidden"},
		{"kind: Deployment, name: d", "kind: a/b",
			"spec.scaleTargetRef.kind: Invalid value\nspec.scaleTargetRef.name: Required value"},
		{"kind: Deployment, ", "", "spec.scaleTargetRef.kind: Required value"},
		{"apiVersion: apps/v1, ", "", "spec.scaleTargetRef.apiVersion: Invalid value"},
		{"apiVersion: apps/v1, kind: Deployment", "apiVersion: v1, kind: ReplicationController", ""},
		{"apiVersion: apps/v1", "apiVersion: a/b/c", "spec.scaleTargetRef.apiVersion: Invalid value"},
		{"maxReplicas: 5", metric(cpu), ""},
		{"maxReplicas: 5", metric("{}"), "spec.metrics[0].type: Required value"},
		{"maxReplicas: 5", metric("{type: Weather}"), "spec.metrics[0].type: Unsupported value"},
		{"maxReplicas: 5", metric("{type: Resource}"), "spec.metrics[0].resource: Required value"},
		{"maxReplicas: 5",
			metric("{type: Resource, pods: {metric: {name: a}, target: {type: AverageValue, averageValue: 1}}, " +
				"resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}"), "spec.metrics[0].pods: Forbidden"},
		{"maxReplicas: 5", metric("{type: Resource, resource: {target: {type: Utilization}}}"),
			"spec.metrics[0].resource.name: Required value\nspec.metrics[0].resource.target.averageUtilization: Required value"},
		{"maxReplicas: 5", metric("{type: Resource, resource: {name: cpu, target: {type: Some, averageUtilization: 0}}}"),
			"spec.metrics[0].resource.target.type: Invalid value\nspec.metrics[0].resource.target.averageUtilization: " +
				"Invalid value"},
		{"maxReplicas: 5",
			metric("{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 5, averageValue: 0}}}"),
			"spec.metrics[0].resource.target.averageValue: Invalid value\n" +
				"spec.metrics[0].resource.target.averageValue: Forbidden"},
		{"maxReplicas: 5",
			metric("{type: ContainerResource, containerResource: {name: frobs, container: A, target: {type: Utilization, " +
				"averageUtilization: 5}}}"),
			strings.Repeat("spec.metrics[0].containerResource.name: Invalid value\n", 2) +
				"spec.metrics[0].containerResource.container: Invalid value"},
		{"maxReplicas: 5",
			metric("{type: ContainerResource, containerResource: {target: {type: Utilization, averageUtilization: 5}}}"),
			"spec.metrics[0].containerResource.name: Required value\nspec.metrics[0].containerResource.container: Required value"},
		{"maxReplicas: 5", metric("{type: Pods, pods: {metric: {name: a/b}, target: {type: AverageValue}}}"),
			"spec.metrics[0].pods.metric.name: Invalid value\nspec.metrics[0].pods.target.averageValue: Required value"},
		{"maxReplicas: 5",
			metric("{type: Object, object: {describedObject: {kind: Service, name: s}, metric: {}, target: {type: Value}}}"),
			"spec.metrics[0].object.metric.name: Required value\nspec.metrics[0].object.target.averageValue: Required value"},
		{"maxReplicas: 5",
			metric("{type: External, external: {metric: {name: a}, target: {type: Value, value: -1, averageValue: 1}}}"),
			"spec.metrics[0].external.target.value: Invalid value\nspec.metrics[0].external.target.value: Forbidden"},
		{"maxReplicas: 5", metric("{type: External, external: {metric: {name: a}, target: {type: Value}}}"),
			"spec.metrics[0].external.target.averageValue: Required value"},
		{"maxReplicas: 5", "minReplicas: 0, " +
			metric("{type: External, external: {metric: {name: a}, target: {type: Value, value: 1}}}"), ""},
		{"maxReplicas: 5", up("{stabilizationWindowSeconds: 3601}"),
			"spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value"},
		{"maxReplicas: 5", up("{stabilizationWindowSeconds: -1}"),
			"spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value"},
		{"maxReplicas: 5", up("{selectPolicy: Any}"), "spec.behavior.scaleUp.selectPolicy: Unsupported value"},
		{"maxReplicas: 5", up("{policies: []}"), "spec.behavior.scaleUp.policies: Required value"},
		{"maxReplicas: 5", up("{policies: [{type: Nodes, value: 0, periodSeconds: 0}]}"),
			"spec.behavior.scaleUp.policies[0].type: Unsupported value\n" +
				"spec.behavior.scaleUp.policies[0].value: Invalid value\n" +
				"spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value"},
		{"maxReplicas: 5", up("{policies: [{type: Pods, value: 1, periodSeconds: 1801}]}"),
			"spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value"},
		{"maxReplicas: 5", up("{tolerance: -1}"), "spec.behavior.scaleUp.tolerance: Invalid value"},
	} {
		t.Run(c.new, func(t *testing.T) {
			t.Parallel()
			r, _ := versions()
			if !strings.Contains(web, c.old) {
				t.Fatalf("no %q", c.old)
			}
			obj := kindtest.Create(t, r, strings.Replace(web, c.old, c.new, 1))
			var want []string
			if c.want != "" {
				want = strings.Split(c.want, "\n")
			}
			kindtest.WantErrors(t, kindtest.Validate(r, obj, nil, ""), want...)
		})
	}
}

func TestUpdates(t *testing.T) {
	t.Parallel()
	r, _ := versions()
	old := strings.Replace(web, "apiVersion: apps/v1, ", "", 1) // stored before apiVersion was validated
	cur := kindtest.Create(t, r, old)
	kindtest.WantErrors(t,
		kindtest.Validate(r, kindtest.Update(t, r, cur, strings.Replace(old, "5", "6", 1), ""), cur, ""))
	bad := kindtest.Update(t, r, cur, strings.TrimSuffix(web, "}")+", status: {currentReplicas: -1, desiredReplicas: -1}}",
		"status")
	kindtest.WantErrors(t, kindtest.Validate(r, bad, cur, "status"), "status.currentReplicas: Invalid value",
		"status.desiredReplicas: Invalid value")
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	r, _ := versions()
	a := kindtest.Create(t, r,
		strings.Replace(web, "maxReplicas: 5",
			"maxReplicas: 5, behavior: {scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 60}]}}", 1)).(*autoscalingv2.HorizontalPodAutoscaler)
	if m := a.Spec.Metrics[0].Resource; *a.Spec.MinReplicas != 1 || m.Name != "cpu" || *m.Target.AverageUtilization != 80 {
		t.Errorf("got %+v", a.Spec)
	}
	up, down := a.Spec.Behavior.ScaleUp, a.Spec.Behavior.ScaleDown
	if *up.StabilizationWindowSeconds != 0 || *up.SelectPolicy != "Max" || len(up.Policies) != 2 ||
		down.StabilizationWindowSeconds != nil || len(down.Policies) != 1 {
		t.Errorf("got %+v, %+v", up, down)
	}
}

const everything = `{metadata: {name: x, annotations: {own: one}}, spec: {minReplicas: 2, maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d},
  behavior: {scaleUp: {stabilizationWindowSeconds: 3, selectPolicy: Min, tolerance: 100m, policies: [{type: Pods, value: 4, periodSeconds: 15}]}},
  metrics: [
  {type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1Gi}}},
  {type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization, averageUtilization: 60}}},
  {type: Pods, pods: {metric: {name: m, selector: {matchLabels: {a: b}}}, target: {type: AverageValue, averageValue: 3}}},
  {type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: s}, metric: {name: m}, target: {type: Value, value: 4}}},
  {type: External, external: {metric: {name: m}, target: {type: AverageValue, averageValue: 5}}},
  {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]},
 status: {currentReplicas: 2, desiredReplicas: 3, observedGeneration: 1, conditions: [{type: AbleToScale, status: 'True', reason: r, message: m}], currentMetrics: [
  {type: Resource, resource: {name: memory, current: {averageValue: 1Gi}}},
  {type: ContainerResource, containerResource: {name: cpu, container: c, current: {averageUtilization: 6, averageValue: 7}}},
  {type: Pods, pods: {metric: {name: m}, current: {averageValue: 3}}},
  {type: Object, object: {describedObject: {kind: Service, name: s}, metric: {name: m}, current: {value: 4}}},
  {type: External, external: {metric: {name: m}, current: {averageValue: 5}}},
  {type: Resource, resource: {name: cpu, current: {averageUtilization: 40, averageValue: 1}}}]}}`

// An object that a v1 client reads and writes back loses no fields.
func TestViewKeepsEverything(t *testing.T) {
	t.Parallel()
	_, v1 := versions()
	for _, text := range []string{everything, web, strings.Replace(everything, "maxReplicas: 5", "maxReplicas: 6", 1)} {
		var a autoscalingv2.HorizontalPodAutoscaler
		decode(t, &a, text)
		if len(a.Spec.Metrics) == 0 {
			decode(t, &a, `{spec: {metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, `+
				`averageUtilization: 80}}}]}}`)
		}
		before := a.DeepCopy()
		back := v1.View.Store(v1.View.Show(&a))
		if !equality.Semantic.DeepEqual(&a, back) {
			t.Error(cmp.Diff(&a, back))
		}
		if !equality.Semantic.DeepEqual(&a, before) {
			t.Error("the stored object was written to")
		}
	}
}

func TestViewInFields(t *testing.T) {
	t.Parallel()
	_, v1 := versions()
	var a autoscalingv2.HorizontalPodAutoscaler
	decode(t, &a, everything)
	shown := v1.View.Show(&a).(*autoscalingv1.HorizontalPodAutoscaler)
	if *shown.Spec.TargetCPUUtilizationPercentage != 50 || *shown.Status.CurrentCPUUtilizationPercentage != 40 ||
		shown.Status.DesiredReplicas != 3 || *shown.Spec.MinReplicas != 2 {
		t.Errorf("got %+v", shown)
	}
	for key, part := range map[string]string{
		"autoscaling.alpha.kubernetes.io/metrics": `{"type":"Pods","pods":{"metricName":"m",` +
			`"targetAverageValue":"3","selector":{"matchLabels":{"a":"b"}}}}`,
		"autoscaling.alpha.kubernetes.io/current-metrics": `"currentAverageUtilization":40`,
		"autoscaling.alpha.kubernetes.io/conditions":      `"type":"AbleToScale"`,
		"autoscaling.alpha.kubernetes.io/behavior": `{"ScaleUp":{"StabilizationWindowSeconds":3,` +
			`"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":"100m"},` +
			`"ScaleDown":null}`,
		"own": "one",
	} {
		if got := shown.Annotations[key]; !strings.Contains(got, part) {
			t.Errorf("%s: %s has no %s", key, got, part)
		}
	}
}

// The fields of v1 are stored as metrics, and invalid annotations are ignored.
func TestViewStores(t *testing.T) {
	t.Parallel()
	_, v1 := versions()
	for text, want := range map[string]int32{
		`{spec: {targetCPUUtilizationPercentage: 30}}`: 30,
		`{spec: {}}`: 80,
		`{metadata: {annotations: {autoscaling.alpha.kubernetes.io/metrics: "[{", ` +
			`autoscaling.alpha.kubernetes.io/behavior: "3", autoscaling.alpha.kubernetes.io/conditions: "{}", ` +
			`autoscaling.alpha.kubernetes.io/current-metrics: x}}}`: 80,
	} {
		var a autoscalingv1.HorizontalPodAutoscaler
		decode(t, &a, text)
		got := v1.View.Store(&a).(*autoscalingv2.HorizontalPodAutoscaler)
		if len(got.Spec.Metrics) != 1 || *got.Spec.Metrics[0].Resource.Target.AverageUtilization != want ||
			len(got.Annotations) > 0 {
			t.Errorf("%s: got %+v", text, got)
		}
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	v2, v1 := versions()
	for text, want := range map[string]string{
		everything: "x|Deployment/d|memory: 1Gi/1Gi, cpu: 6%/60% + 4 more...|2|5|2|<unknown>",
		"{metadata: {name: x}, spec: {maxReplicas: 1, minReplicas: 0, metrics: [{type: Pods, pods: {metric: {name: m}, " +
			"target: {averageValue: 3}}}, {type: External, external: {target: {averageValue: 5}}}]}}": "x|/|<unknown>/3, <unknown>/5 (avg)|0|1|0|<unknown>",
		"{spec: {minReplicas: 1, metrics: [{type: Object, object: {target: {value: 5}}}, {type: Resource, " +
			"resource: {name: cpu, target: {}}}]}, status: {currentMetrics: [{type: Object, object: {current: {value: 2}}}]}}": "|/|2/5, cpu: <unknown>/<auto>|1|0|0|<unknown>",
		"{spec: {minReplicas: 1, metrics: [{type: Weather}]}}": "|/|<unknown type>|1|0|0|<unknown>",
	} {
		var a autoscalingv2.HorizontalPodAutoscaler
		decode(t, &a, text)
		if got := kindtest.Row(t, v2.Columns, &a); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	var a autoscalingv2.HorizontalPodAutoscaler
	decode(t, &a, everything)
	if got := kindtest.Row(t, v1.Columns, v1.View.Show(&a)); got != kindtest.Row(t, v2.Columns, &a) {
		t.Errorf("the view prints %s", got)
	}
	if got := kindtest.Row(t, v2.Columns,
		new(autoscalingv2.HorizontalPodAutoscaler)); got != "|/|<none>|<unset>|0|0|<unknown>" {
		t.Errorf("got %s", got)
	}
}
