package workload

import (
	"bytes"
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func controllerRevisionResource() kind.Resource {
	return kind.Resource{
		GVR:        client.ControllerRevisions,
		Kind:       "ControllerRevision",
		Namespaced: true,
		New:        func() kind.Object { return new(appsv1.ControllerRevision) },
		Validate:   controllerRevisionValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("Controller", "The controller of the revision.", controllerRevisionOwner),
			table.Number("Revision", "Number of the revision; newer revisions have higher numbers.",
				func(r *appsv1.ControllerRevision) int64 { return r.Revision }),
			table.Age(),
		},
	}
}

// controllerRevisionOwner returns the controller as "kind.group/name".
func controllerRevisionOwner(r *appsv1.ControllerRevision) string {
	owner := metav1.GetControllerOf(r)
	if owner == nil {
		return table.None
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return table.None
	}
	return strings.ToLower(gv.WithKind(owner.Kind).GroupKind().String()) + "/" + owner.Name
}

func controllerRevisionValidate(next, cur kind.Object, _ string) field.ErrorList {
	r, path := next.(*appsv1.ControllerRevision), field.NewPath("data")
	var errs field.ErrorList
	switch data := bytes.TrimSpace(r.Data.Raw); {
	case len(data) == 0 || string(data) == "null":
		errs = append(errs, field.Required(path, "data is mandatory"))
	case data[0] != '{' || !json.Valid(data):
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "must be a valid JSON object"))
	}
	errs = append(errs, check.NonNegative(field.NewPath("revision"), r.Revision)...)
	if cur != nil && !sameJSON(r.Data.Raw, cur.(*appsv1.ControllerRevision).Data.Raw) {
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "field is immutable"))
	}
	return errs
}

// sameJSON reports whether two JSON texts are equal except for white space.
func sameJSON(a, b []byte) bool {
	var left, right bytes.Buffer
	if json.Compact(&left, a) != nil || json.Compact(&right, b) != nil {
		return bytes.Equal(a, b)
	}
	return bytes.Equal(left.Bytes(), right.Bytes())
}
