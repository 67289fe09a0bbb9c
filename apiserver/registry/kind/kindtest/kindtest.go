// Package kindtest helps to test kinds by tables. It reads objects as YAML, and prints errors as "field: type" and
// columns as kubectl does.
package kindtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Now returns the time at which tests print tables. Objects contain times before it.
func Now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// Create decodes an object and does the steps of a creation up to validation.
func Create(t *testing.T, r kind.Resource, text string) kind.Object {
	t.Helper()
	obj := r.New()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if r.Prepare != nil {
		r.Prepare(obj, nil, "")
	}
	if r.Default != nil {
		r.Default(obj)
		once := obj.DeepCopyObject()
		r.Default(obj)
		if !equality.Semantic.DeepEqual(once, obj) {
			t.Errorf("%s: defaults are not stable", text)
		}
	}
	if r.Stamp != nil {
		r.Stamp(obj, nil, metav1.NewTime(Now()))
	}
	return obj
}

// Update decodes next and does the steps of an update of cur up to validation.
func Update(t *testing.T, r kind.Resource, cur kind.Object, text, subresource string) kind.Object {
	t.Helper()
	next := r.New()
	if err := yaml.UnmarshalStrict([]byte(text), next); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	next.SetGeneration(cur.GetGeneration())
	r.PrepareUpdate(next, cur, subresource)
	if r.Default != nil {
		r.Default(next)
	}
	if r.Stamp != nil {
		r.Stamp(next, cur, metav1.NewTime(Now()))
	}
	return next
}

// Validate returns the errors of an update.
func Validate(r kind.Resource, next, cur kind.Object, subresource string) field.ErrorList {
	return r.ValidateUpdate(next, cur, subresource)
}

// Lines prints errors as "field: type", one for each line.
func Lines(errs field.ErrorList) string {
	var lines []string
	for _, err := range errs {
		lines = append(lines, err.Field+": "+err.Type.String())
	}
	return strings.Join(lines, "\n")
}

// WantErrors fails the test unless errs are the wanted errors, in this order.
func WantErrors(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), Lines(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s\nin full: %v", diff, errs.ToAggregate())
	}
}

// Row returns the row of obj that kubectl get -o wide shows, with cells separated by "|".
func Row(t *testing.T, columns []table.Column, obj kind.Object) string {
	t.Helper()
	var cells []string
	for i, c := range columns {
		value := c.Cell(obj, Now())
		if _, isInt := value.(int64); c.Type == "integer" && !isInt {
			t.Errorf("column %d (%s) is an integer but holds %T", i, c.Name, value)
		}
		cells = append(cells, fmt.Sprint(value))
	}
	return strings.Join(cells, "|")
}

// Headings returns the columns' names: those that are always shown, " / ", those of -o wide.
func Headings(columns []table.Column) string {
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
