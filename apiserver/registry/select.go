package registry

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/registry/convert"
	"monopod/store"
)

// selectorOf translates a client's selector for the store, which stores the objects of res as base. It returns an error
// for unsupported fields.
func selectorOf(res, base *Resource, sel client.Selector) (store.Selector, error) {
	s := store.Selector{Resource: base.StoreName(), Namespace: sel.Namespace, Progress: sel.Bookmarks}
	var wanted fields.Requirements
	if sel.Fields != nil {
		wanted = sel.Fields.Requirements()
	}
	var rest fields.Requirements
	var supported fields.Set // besides the metadata, which every kind supports
	for _, q := range wanted {
		if q.Field != "metadata.name" && q.Field != "metadata.namespace" {
			if supported == nil {
				supported = res.FieldsOf(res.New())
			}
			if !supported.Has(q.Field) {
				return s, apierror.BadRequest(fmt.Sprintf("field label not supported: %s", q.Field))
			}
		}
		equals := q.Operator == selection.Equals || q.Operator == selection.DoubleEquals
		if q.Field == "metadata.name" && equals && s.Name == "" {
			s.Name = q.Value
			continue
		}
		rest = append(rest, q)
	}
	s.Match = matcher(res, sel.Labels, rest)
	return s, nil
}

// matcher returns the function that checks label and field requirements; nil: there are none.
func matcher(res *Resource, l labels.Selector, f fields.Requirements) func(store.Object) bool {
	byLabel := l != nil && !l.Empty()
	if !byLabel && len(f) == 0 {
		return nil
	}
	return func(obj store.Object) bool {
		if byLabel && !l.Matches(labels.Set(obj.GetLabels())) {
			return false
		}
		if len(f) == 0 {
			return true
		}
		as, err := convert.Of(context.Background(), res, obj)
		// on an error select the object: its conversion for the response fails, too
		return err != nil || !slices.ContainsFunc(f, func(q fields.Requirement) bool {
			return (res.FieldOf(as, q.Field) == q.Value) == (q.Operator == selection.NotEquals)
		})
	}
}
