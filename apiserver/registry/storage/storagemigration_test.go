package storage

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/kind"
)

func object(t *testing.T, text string) *migration {
	t.Helper()
	m := &migration{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if err := yaml.UnmarshalStrict([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// condition returns a condition of a status.
func condition(typ, status string) string {
	return "{type: " + typ + ", status: '" + status +
		"', reason: R, message: m, lastTransitionTime: '2026-01-02T03:04:05Z'}"
}

func TestValidation(t *testing.T) {
	t.Parallel()
	const spec = "spec: {resource: {group: example.com, resource: things}}"
	for name, c := range map[string]struct{ next, cur, sub, want string }{
		"core":         {next: "spec: {resource: {resource: secrets}}"},
		"custom":       {next: spec},
		"no resource":  {next: "spec: {resource: {group: example.com}}", want: "spec.resource.resource: Required"},
		"bad group":    {next: "spec: {resource: {group: 'a_b', resource: x}}", want: "spec.resource.group: Invalid"},
		"bad resource": {next: "spec: {resource: {resource: 'A/b'}}", want: "spec.resource.resource: Invalid"},
		"another":      {next: "spec: {resource: {resource: pods}}", cur: spec, want: "spec: Invalid value"},
		"running":      {next: "status: {conditions: [" + condition("Running", "True") + "]}", cur: spec, sub: "status"},
		"both": {next: "status: {conditions: [" + condition("Succeeded", "True") + "," +
			condition("Failed", "True") + "]}", cur: spec, sub: "status", want: "Both success"},
		"succeeded and running": {next: "status: {conditions: [" + condition("Succeeded", "True") + "," + condition("Running",
			"True") + "]}", cur: spec, sub: "status", want: "Running condition"},
		"no longer failed": {next: "status: {conditions: [" + condition("Failed", "False") + "]}",
			cur: "status: {conditions: [" + condition("Failed", "True") + "]}", sub: "status", want: "Failed condition cannot"},
		"another version": {next: "status: {resourceVersion: '2'}", cur: "status: {resourceVersion: '1'}", sub: "status",
			want: "status.resourceVersion"},
		"no reason": {next: "status: {conditions: [{type: Running, status: 'True', " +
			"lastTransitionTime: '2026-01-02T03:04:05Z'}]}", cur: spec, sub: "status", want: "status.conditions[0].reason"},
	} {
		var cur kind.Object
		if c.cur != "" {
			cur = object(t, c.cur)
		}
		errs := fmt.Sprint(validateMigration(object(t, c.next), cur, c.sub))
		if (c.want == "") != (errs == "[]") || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %q, want %q", name, errs, c.want)
		}
	}
}
