package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// ranges serves ConfigMaps as RangeAllocations.
func ranges() registry.Resource {
	return registry.Resource{
		GVR: testGVR("ranges"), Kind: "Range", Namespaced: true,
		New: func() registry.Object { return &corev1.RangeAllocation{} },
		View: &kind.View{
			Of: client.ConfigMaps,
			Show: func(stored registry.Object) registry.Object {
				c := stored.(*corev1.ConfigMap)
				return &corev1.RangeAllocation{ObjectMeta: *c.ObjectMeta.DeepCopy(), Range: c.Data["range"]}
			},
			Store: func(shown registry.Object) registry.Object {
				r := shown.(*corev1.RangeAllocation)
				return &corev1.ConfigMap{ObjectMeta: *r.ObjectMeta.DeepCopy(), Data: map[string]string{"range": r.Range}}
			},
		},
		Validate: func(next, _ registry.Object, _ string) (errs field.ErrorList) {
			if next.(*corev1.RangeAllocation).Range == "" {
				errs = append(errs, field.Required(field.NewPath("range"), ""))
			}
			return errs
		},
		Fields: func(obj registry.Object) fields.Set {
			return fields.Set{"range": obj.(*corev1.RangeAllocation).Range}
		},
		Columns: []table.Column{table.Name(),
			table.Text("Range", "", func(r *corev1.RangeAllocation) string { return r.Range })},
	}
}

func TestAViewIsServedAsItself(t *testing.T) {
	t.Parallel()
	a := serveOf(t, nil, ranges())
	const all = "/apis/test.monopod/v1/namespaces/default/ranges"
	watched := a.do("GET", all+"?watch=1", "", asJSON)
	for _, c := range []struct {
		name, method, path, body string
		code                     int
		says                     string
		header                   []string
	}{
		{"create", "POST", all, `{"kind":"Range","apiVersion":"test.monopod/v1","metadata":{"name":"a"},"range":"1-2"}`, 201,
			`"kind":"Range","apiVersion":"test.monopod/v1"`, nil},
		{"create again", "POST", all, `{"metadata":{"name":"a"},"range":"1-2"}`, 409, "AlreadyExists", nil},
		{"create another kind", "POST", all, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"}}`, 400, "Range",
			nil},
		{"invalid", "POST", all, `{"metadata":{"name":"b"}}`, 422, "range: Required value", nil},
		{"generated", "POST", all, `{"metadata":{"generateName":"gen-"},"range":"8"}`, 201, `"name":"gen-`, nil},
		{"get", "GET", all + "/a", "", 200, `"range":"1-2"`, nil},
		{"the object behind it", "GET", confs + "/a", "", 200, `"data":{"range":"1-2"}`, nil},
		{"list", "GET", all, "", 200, `{"kind":"RangeList","apiVersion":"test.monopod/v1"`, nil},
		{"field selector", "GET", all + "?fieldSelector=range%3D1-2", "", 200, `"items":[{"kind":"Range"`, nil},
		{"field selector of none", "GET", all + "?fieldSelector=range%3D9", "", 200, `"items":[]`, nil},
		{"unknown field", "GET", all + "?fieldSelector=data%3D9", "", 400, "field label not supported", nil},
		{"page", "GET", all + "?limit=1", "", 200, `"continue":"`, nil},
		{"table", "GET", all + "/a", "", 200, `"cells":["a","1-2"]`,
			[]string{"Accept: application/json;as=Table;v=v1;g=meta.k8s.io"}},
		{"merge patch", "PATCH", all + "/a", `{"range":"3"}`, 200, `"range":"3"`,
			[]string{"Content-Type: application/merge-patch+json"}},
		{"JSON patch", "PATCH", all + "/a",
			`[{"op":"test","path":"/range","value":"3"},{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`, 200,
			`"x":"y"`, []string{asPatch}},
		{"strategic patch", "PATCH", all + "/a", `{"metadata":{"labels":{"z":"1"}}}`, 200, `"x":"y","z":"1"`,
			[]string{"Content-Type: application/strategic-merge-patch+json"}},
		{"stale", "PUT", all + "/a", `{"metadata":{"name":"a","resourceVersion":"1"},"range":"4"}`, 409, "Conflict", nil},
		{"update", "PUT", all + "/a", `{"metadata":{"name":"a"},"range":"4"}`, 200, `"range":"4"`, nil},
		{"delete", "DELETE", all + "/a", "", 200, `"kind":"ranges"`, nil},
		{"delete all", "DELETE", all, "", 200, `"range":"8"`, nil},
	} {
		resp := a.do(c.method, c.path, c.body, append([]string{asJSON}, c.header...)...)
		if data := readBody(t, resp); resp.StatusCode != c.code || !strings.Contains(data, c.says) {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, data)
		}
	}
	got := fmt.Sprint(lines(t, watched, 5))
	if !strings.HasPrefix(got, "[ADDED a ADDED gen-") || !strings.HasSuffix(got, "MODIFIED a MODIFIED a MODIFIED a]") {
		t.Errorf("watched %s", got)
	}
}

func TestAViewInProcess(t *testing.T) {
	t.Parallel()
	a := serveOf(t, nil, ranges())
	ref := client.Ref{Resource: testGVR("ranges"), Namespace: "default", Name: "a"}
	sel := client.Selector{Resource: ref.Resource}
	changes, err := a.reg.Watch(t.Context(), sel, fmt.Sprint(a.reg.Revision()))
	if err != nil {
		t.Fatal(err)
	}
	made, err := a.reg.Create(t.Context(),
		&corev1.RangeAllocation{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}, Range: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.reg.Update(t.Context(), ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*corev1.RangeAllocation)
		next.Range = "2"
		return next, nil
	}); err != nil {
		t.Fatal(err)
	}
	got, err := a.reg.Get(t.Context(), ref)
	if err != nil || got.(*corev1.RangeAllocation).Range != "2" || got.GetUID() != made.GetUID() ||
		got.GetResourceVersion() == made.GetResourceVersion() {
		t.Errorf("%v, %v", got, err)
	}
	for range 2 {
		if ev := <-changes; ev.Object.GetObjectKind().GroupVersionKind().Kind != "Range" {
			t.Errorf("watched %T", ev.Object)
		}
	}
	for range 2 {
		if _, err := a.reg.Delete(t.Context(), ref, metav1.DeleteOptions{}); err != nil {
			break
		}
	}
	if objs, _, err := a.reg.List(t.Context(), sel); err != nil || len(objs) > 0 {
		t.Errorf("left: %v, %v", objs, err)
	}
}
