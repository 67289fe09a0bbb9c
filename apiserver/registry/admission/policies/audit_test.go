package policies_test

import (
	"context"
	"maps"
	"testing"

	"monopod/apiserver/audit/audittest"
)

// The audit event of a request has the failures of policies with the action Audit, and all audit annotations.
func TestAudit(t *testing.T) {
	t.Parallel()
	c := open(t)
	c.policy("p", `{validations: [{expression: "true"}, {expression: "false", messageExpression: "'not ' + object.data.a"}],
		auditAnnotations: [{key: value, valueExpression: "object.data.a + '!'"}, {key: none, valueExpression: "null"}]}`, `validationActions: [Warn, Audit]`)
	c.policy("q", `{auditAnnotations: [{key: name, valueExpression: "string(object.metadata.name)"}]}`, ``)
	got := audittest.Annotations(c.ctx, t, func(ctx context.Context) {
		if _, err := c.Create(ctx, config("c", map[string]string{"a": "b"})); err != nil {
			t.Error(err)
		}
	})
	want := map[string]string{
		"p/value": "b!", "q/name": "c",
		"validation.policy.admission.k8s.io/validation_failure": `[{"message":"not ` +
			`b","policy":"p","binding":"p-binding","expressionIndex":1,"validationActions":["Warn","Audit"]}]`,
	}
	if !maps.Equal(got, want) {
		t.Errorf("annotations %q", got)
	}
}
