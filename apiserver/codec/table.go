package codec

import (
	"bytes"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// Partial returns the object's metadata in a version of meta.k8s.io.
func Partial(obj kind.Object, version schema.GroupVersion) *metav1.PartialObjectMetadata {
	p := metaOf(obj)
	p.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: version.String()}
	return p
}

func metaOf(obj kind.Object) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: obj.GetName(), GenerateName: obj.GetGenerateName(), Namespace: obj.GetNamespace(),
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(),
		CreationTimestamp: obj.GetCreationTimestamp(), DeletionTimestamp: obj.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: obj.GetDeletionGracePeriodSeconds(), Labels: obj.GetLabels(),
		Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences(),
		Finalizers: obj.GetFinalizers(), ManagedFields: obj.GetManagedFields(),
	}}
}

// Printed is a Table under construction.
type Printed struct {
	metav1.Table
	columns []table.Column
	include metav1.IncludeObjectPolicy
	version schema.GroupVersion
}

// NewTable returns an empty table with the columns of the kind, in a version of meta.k8s.io.
func NewTable(res *kind.Resource, include metav1.IncludeObjectPolicy, version schema.GroupVersion) *Printed {
	p := &Printed{columns: res.Columns, include: include, version: version}
	p.Kind, p.APIVersion = "Table", version.String()
	p.ColumnDefinitions = table.Definitions(res.Columns)
	p.Rows = []metav1.TableRow{}
	return p
}

// MarshalJSON encodes only the Table.
func (p *Printed) MarshalJSON() ([]byte, error) { return json.Marshal(&p.Table) }

// Add adds the row of an object. The ages in it are relative to now.
func (p *Printed) Add(e *store.Entry, now time.Time) error {
	row, err := p.row(e, now)
	if err == nil {
		p.Rows = append(p.Rows, row)
	}
	return err
}

// encoded returns the row of an object as JSON.
func (p *Printed) encoded(e *store.Entry, now time.Time) ([]byte, error) {
	row, err := p.row(e, now)
	if err != nil {
		return nil, err
	}
	return json.Marshal(row)
}

// head returns the JSON of the table up to its first row. The table must have no rows.
func (p *Printed) head() ([]byte, error) {
	data, err := json.Marshal(p)
	return bytes.TrimSuffix(data, []byte("]}")), err
}

func (p *Printed) row(e *store.Entry, now time.Time) (row metav1.TableRow, err error) {
	var object runtime.RawExtension
	switch p.include {
	case metav1.IncludeObject:
		object.Raw = e.JSON()
	case metav1.IncludeMetadata:
		data, err := json.Marshal(Partial(e.Object, p.version))
		if err != nil {
			return row, err
		}
		object.Raw = data
	}
	return table.Row(p.columns, e.Object, now, object), nil
}
