package custom

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"

	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// columnsWith returns the columns of a version: the name, then those of its definition, or by default the age.
func columnsWith(spec *apiextensionsv1.CustomResourceDefinitionVersion, rows *lastRow) []table.Column {
	more := spec.AdditionalPrinterColumns
	if len(more) == 0 {
		more = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
				JSONPath: ".metadata.creationTimestamp"}}
	}
	columns := []table.Column{table.Name()}
	for i, def := range more[:min(len(more), MaxColumns)] { // an earlier release may have stored more
		if !isAge(def) {
			rows.last = i
		}
		columns = append(columns, columnOf(def, i, rows))
	}
	return columns
}

// isAge reports whether a column shows the age of the object, which needs no member.
func isAge(def apiextensionsv1.CustomResourceColumnDefinition) bool {
	return def.JSONPath == ".metadata.creationTimestamp" && def.Type == "date"
}

func columnOf(def apiextensionsv1.CustomResourceColumnDefinition, i int, rows *lastRow) table.Column {
	description := def.Description
	if description == "" {
		description = "Custom resource definition column (in JSONPath format): " + def.JSONPath
	}
	var path *jsonpath.JSONPath // parsed when the first object is printed
	var mu sync.Mutex           // guards path, whose evaluation has state
	return table.Column{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: def.Name, Type: def.Type, Format: def.Format,
			Description: description, Priority: def.Priority},
		Cell: func(obj store.Object, now time.Time) any {
			if isAge(def) {
				return table.Since(obj.GetCreationTimestamp().Time, now)
			}
			if i == rows.last {
				defer rows.end()
			}
			mu.Lock()
			defer mu.Unlock()
			if path == nil {
				path = jsonpath.New(def.Name).AllowMissingKeys(true)
				if !HasBoundedResults(def.JSONPath) || path.Parse(fmt.Sprintf("{%s}", def.JSONPath)) != nil {
					path = nil
					return nil // validation rejects it
				}
			}
			o := obj.(*Object)
			if HasRecursiveDescent(def.JSONPath) && o.size() > MaxDescent {
				return nil
			}
			return cell(path, rows.content(o), def.Type, now)
		},
	}
}

// lastRow caches the last printed object in decoded form, for the other columns of the same row.
type lastRow struct {
	last int // index of the last column that needs the object

	mu  sync.Mutex // guards the fields below
	obj *Object
	all map[string]any
}

func (r *lastRow) content(o *Object) map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.obj != o {
		all, err := o.Content()
		if err != nil {
			return nil
		}
		r.obj, r.all = o, all
	}
	return r.all
}

// end drops the object. Its decoded form takes several times the memory of the stored one.
func (r *lastRow) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.obj, r.all = nil, nil
}

// cell returns the value at path as a cell of a column of the type; nil: there is none.
func cell(path *jsonpath.JSONPath, all map[string]any, typ string, now time.Time) any {
	results, err := path.FindResults(all)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil
	}
	value := results[0][0].Interface()
	if value == nil {
		return nil
	}
	if typ != "string" {
		return typedCell(typ, value, now)
	}
	var text bytes.Buffer
	if path.PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}) != nil {
		return nil
	}
	if text.Len() <= MaxCell {
		return text.String()
	}
	return strings.ToValidUTF8(text.String()[:MaxCell], "") + "…"
}

func typedCell(typ string, value any, now time.Time) any {
	switch v := value.(type) {
	case int64:
		switch typ {
		case "integer":
			return v
		case "number":
			return float64(v)
		}
	case float64:
		switch typ {
		case "integer":
			return int64(v)
		case "number":
			return v
		}
	case bool:
		if typ == "boolean" {
			return v
		}
	case string:
		var at metav1.Time
		switch {
		case typ != "date":
		case at.UnmarshalQueryParameter(v) != nil:
			return "<invalid>"
		default:
			return table.Since(at.Time, now)
		}
	}
	return nil
}
