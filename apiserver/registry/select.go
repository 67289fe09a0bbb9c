package registry

import (
	"context"
	"fmt"

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
	if err := checkFields(res, wanted); err != nil {
		return s, err
	}
	var rest fields.Requirements
	for _, q := range wanted {
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

// checkFields returns an error for field requirements that the kind does not support.
func checkFields(r *Resource, wanted fields.Requirements) error {
	var known fields.Set
	for _, q := range wanted {
		if q.Field == "metadata.name" || q.Field == "metadata.namespace" {
			continue // every kind supports them
		}
		if known == nil {
			known = r.FieldsOf(r.New())
		}
		if !known.Has(q.Field) {
			return apierror.BadRequest(fmt.Sprintf("field label not supported: %s", q.Field))
		}
	}
	return nil
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
		return err != nil || matchFields(f, res, as)
	}
}

func matchFields(wanted fields.Requirements, res *Resource, obj store.Object) bool {
	for _, q := range wanted {
		if (res.FieldOf(obj, q.Field) == q.Value) == (q.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}
