package policy

import (
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/registry/kind/kindtest"
)

func TestPodDisruptionBudgets(t *testing.T) {
	t.Parallel()
	r := of(t, "PodDisruptionBudget")
	for spec, want := range map[string]string{
		`{minAvailable: 1, selector: {matchLabels: {a: b}}}`: "",
		`{maxUnavailable: 100%}`:                             "",
		`{}`:                                                 "",
		`{minAvailable: 1, maxUnavailable: 1}`:               "spec: Invalid value",
		`{minAvailable: -1}`:                                 "spec.minAvailable: Invalid value",
		`{minAvailable: 101%}`:                               "spec.minAvailable: Invalid value",
		`{maxUnavailable: half}`:                             "spec.maxUnavailable: Invalid value",
		`{maxUnavailable: 101%}`:                             "spec.maxUnavailable: Invalid value",
		`{selector: {matchLabels: {a: "-"}}}`:                "spec.selector.matchLabels: Invalid value",
		`{selector: {matchExpressions: [{key: a, operator: In}]}}`: "spec.selector.matchExpressions[0].values: Required value",
		`{unhealthyPodEvictionPolicy: Never}`:                      "spec.unhealthyPodEvictionPolicy: Unsupported value",
	} {
		var lines []string
		if want != "" {
			lines = strings.Split(want, "\n")
		}
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, "{spec: "+spec+"}"), nil, ""), lines...)
	}
}

func TestPodDisruptionBudgetStatus(t *testing.T) {
	t.Parallel()
	r := of(t, "PodDisruptionBudget")
	cur := kindtest.Create(t, r, "{metadata: {name: x}, spec: {minAvailable: 1}, status: {expectedPods: 9}}")
	if b := cur.(*policyv1.PodDisruptionBudget); b.Generation != 1 || b.Status.ExpectedPods != 0 {
		t.Errorf("got %+v", b)
	}
	next := kindtest.Update(t, r, cur, "{spec: {minAvailable: 2}, status: {disruptionsAllowed: -1, currentHealthy: -1, "+
		"desiredHealthy: -1, expectedPods: -1}}", "status")
	kindtest.WantErrors(t, kindtest.Validate(r, next, cur, "status"), "status.disruptionsAllowed: Invalid value",
		"status.currentHealthy: Invalid value", "status.desiredHealthy: Invalid value", "status.expectedPods: Invalid value")
	if b := next.(*policyv1.PodDisruptionBudget); b.Spec.MinAvailable.IntValue() != 1 || b.Generation != 1 {
		t.Errorf("a write of the status changed the spec: %+v", b)
	}
	if next = kindtest.Update(t, r, cur, "{spec: {minAvailable: 2}}", ""); next.GetGeneration() != 2 {
		t.Errorf("generation %d", next.GetGeneration())
	}
}

func TestPodDisruptionBudgetRows(t *testing.T) {
	t.Parallel()
	r := of(t, "PodDisruptionBudget")
	b := &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromString("50%"))}}
	b.Name, b.Status.DisruptionsAllowed = "x", 2
	if got := kindtest.Row(t, r.Columns, b); got != "x|50%|N/A|2|<unknown>" {
		t.Errorf("got %s", got)
	}
}
