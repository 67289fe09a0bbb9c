package codec

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// Partial returns the object's metadata.
func Partial(obj kind.Object) *metav1.PartialObjectMetadata {
	p := metaOf(obj)
	p.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String()}
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
}

// NewTable is an empty table with the columns of the kind.
func NewTable(res *kind.Resource, include metav1.IncludeObjectPolicy) *Printed {
	p := &Printed{columns: res.Columns, include: include}
	p.Kind, p.APIVersion = "Table", metav1.SchemeGroupVersion.String()
	p.ColumnDefinitions = table.Definitions(res.Columns)
	p.Rows = []metav1.TableRow{}
	return p
}

// MarshalJSON encodes only the Table.
func (p *Printed) MarshalJSON() ([]byte, error) { return json.Marshal(&p.Table) }

// Add adds the row of an object; now is what its age counts to.
func (p *Printed) Add(e *store.Entry, now time.Time) error {
	var object runtime.RawExtension
	switch p.include {
	case metav1.IncludeObject:
		object.Raw = e.JSON
	case metav1.IncludeMetadata:
		data, err := json.Marshal(Partial(e.Object))
		if err != nil {
			return err
		}
		object.Raw = data
	}
	p.Rows = append(p.Rows, table.Row(p.columns, e.Object, now, object))
	return nil
}
