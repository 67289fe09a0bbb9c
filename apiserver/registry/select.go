package registry

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"monopod/apiserver/client"
	"monopod/store"
)

// selector turns what a client asks for into what the store can look for. Field
// names the kind does not know are refused.
func (r *Registry) selector(sel client.Selector) (store.Selector, error) {
	res, err := r.stored(sel.Resource)
	if err != nil {
		return store.Selector{}, err
	}
	s := store.Selector{Resource: r.base(res).Key("", "").Resource, Namespace: sel.Namespace, Progress: sel.Bookmarks}
	var wanted fields.Requirements
	if sel.Fields != nil {
		wanted = sel.Fields.Requirements()
	}
	if err := knows(res, wanted); err != nil {
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
	s.Match = match(res, sel.Labels, rest)
	return s, nil
}

// knows refuses requirements on fields the kind does not index.
func knows(r *Resource, wanted fields.Requirements) error {
	known := r.FieldsOf(r.New())
	for _, q := range wanted {
		if !known.Has(q.Field) {
			return errBadRequest(fmt.Sprintf("field label not supported: %s", q.Field))
		}
	}
	return nil
}

// match is the part of a selection that needs to see the object; nil for none.
func match(res *Resource, l labels.Selector, f fields.Requirements) func(store.Object) bool {
	byLabel := l != nil && !l.Empty()
	if !byLabel && len(f) == 0 {
		return nil
	}
	return func(obj store.Object) bool {
		if byLabel && !l.Matches(labels.Set(obj.GetLabels())) {
			return false
		}
		return len(f) == 0 || matchFields(f, res.FieldsOf(shown(res, obj)))
	}
}

func matchFields(wanted fields.Requirements, have fields.Set) bool {
	for _, q := range wanted {
		if (have[q.Field] == q.Value) == (q.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}
