package custom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/registry/kind/table"
)

// Recursive descents work only for small objects, and no printed object stays decoded.
func TestColumnsOfLargeObjects(t *testing.T) {
	t.Parallel()
	spec := &apiextensionsv1.CustomResourceDefinitionVersion{AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "First", Type: "string", JSONPath: ".spec.inner.color"},
		{Name: "Any", Type: "string", JSONPath: ".spec..color"},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	}}
	rows := &lastRow{}
	columns := columnsWith(spec, rows)
	for filler, want := range map[int]string{100: "[o red red <unknown>]", MaxDescent: "[o red <nil> <unknown>]"} {
		o := &Object{members: []member{{"spec",
			fmt.Appendf(nil, `{"inner":{"color":"red"},"text":%q}`, strings.Repeat("x", filler))}}}
		o.Name = "o"
		row := table.Row(columns, o, time.Time{}, runtime.RawExtension{})
		if got := fmt.Sprint(row.Cells); got != want {
			t.Errorf("%d bytes: %s, want %s", filler, got, want)
		}
		if rows.obj != nil || rows.all != nil {
			t.Errorf("%d bytes: the object stays decoded", filler)
		}
	}
}
