package apiserver

import (
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/registry"
	"monopod/apiserver/table"
	"monopod/store"
)

// get answers one object, or what a subresource makes of it.
func (s *Server) get(w http.ResponseWriter, r *http.Request, t target) error {
	if a, ok := s.answerFor(t); ok {
		return s.getAnswer(w, r, t, a)
	}
	switch t.ref.Subresource {
	case "", "status", "ephemeralcontainers", "resize":
		return s.getObject(w, r, t)
	case "scale":
		return s.getScale(w, r, t)
	}
	return s.stream(w, r, t)
}

func (s *Server) getScale(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := negotiate(r, "PartialObjectMetadata")
	if err != nil {
		return err
	}
	scale, err := s.registry.Get(r.Context(), t.ref)
	if err != nil {
		return err
	}
	return s.answer(w, r, f, t, http.StatusOK, scale)
}

func (s *Server) getObject(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := negotiate(r, "Table", "PartialObjectMetadata")
	if err != nil {
		return err
	}
	e, err := s.registry.Entry(r.Context(), t.ref)
	if err != nil {
		return err
	}
	v, err := s.shape(r, t.res, f, e)
	if err != nil {
		return err
	}
	s.send(w, r, f, http.StatusOK, v)
	return nil
}

// shape is the entry as the client wants it.
func (s *Server) shape(r *http.Request, res *registry.Resource, f format, e *store.Entry) (any, error) {
	switch f.as {
	case "Table":
		include, err := includeObject(r)
		if err != nil {
			return nil, err
		}
		t := newTable(res, include)
		t.ResourceVersion = e.Object.GetResourceVersion()
		return t, t.add(e, s.now())
	case "PartialObjectMetadata":
		return partial(e.Object), nil
	}
	if f.media == typeProtobuf {
		return e.Object, nil
	}
	if pretty(r) {
		return json.RawMessage(e.JSON), nil
	}
	return e.JSON, nil
}

// answer sends an object that a write returned. A Scale has no Table.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, f format, t target, code int, obj registry.Object) error {
	if f.as == "Table" && t.ref.Subresource == "scale" {
		f.as = ""
	}
	e := &store.Entry{Object: obj}
	if f.media != typeProtobuf {
		var err error
		if e.JSON, err = s.registry.JSON(r.Context(), obj); err != nil {
			return err
		}
	}
	v, err := s.shape(r, t.res, f, e)
	if err != nil {
		return err
	}
	s.send(w, r, f, code, v)
	return nil
}

// partial is the object's metadata alone.
func partial(obj registry.Object) *metav1.PartialObjectMetadata {
	p := metaOf(obj)
	p.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String()}
	return p
}

func metaOf(obj registry.Object) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: obj.GetName(), GenerateName: obj.GetGenerateName(), Namespace: obj.GetNamespace(),
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(),
		CreationTimestamp: obj.GetCreationTimestamp(), DeletionTimestamp: obj.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: obj.GetDeletionGracePeriodSeconds(), Labels: obj.GetLabels(),
		Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences(),
		Finalizers: obj.GetFinalizers(), ManagedFields: obj.GetManagedFields(),
	}}
}

// printed is a Table under construction.
type printed struct {
	metav1.Table
	columns []table.Column
	include metav1.IncludeObjectPolicy
}

func newTable(res *registry.Resource, include metav1.IncludeObjectPolicy) *printed {
	p := &printed{columns: res.Columns, include: include}
	p.Kind, p.APIVersion = "Table", metav1.SchemeGroupVersion.String()
	p.ColumnDefinitions = table.Definitions(res.Columns)
	p.Rows = []metav1.TableRow{}
	return p
}

// MarshalJSON encodes the Table alone.
func (p *printed) MarshalJSON() ([]byte, error) { return json.Marshal(&p.Table) }

func (p *printed) add(e *store.Entry, now time.Time) error {
	var object runtime.RawExtension
	switch p.include {
	case metav1.IncludeObject:
		object.Raw = e.JSON
	case metav1.IncludeMetadata:
		data, err := json.Marshal(partial(e.Object))
		if err != nil {
			return err
		}
		object.Raw = data
	}
	p.Rows = append(p.Rows, table.Row(p.columns, e.Object, now, object))
	return nil
}

// includeObject reads what a table row should carry of its object.
func includeObject(r *http.Request) (metav1.IncludeObjectPolicy, error) {
	opts := metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))}
	if opts.IncludeObject == "" {
		return metav1.IncludeMetadata, nil
	}
	if errs := validation.ValidateTableOptions(&opts); len(errs) > 0 {
		return "", invalidOptions("TableOptions", errs)
	}
	return opts.IncludeObject, nil
}

func invalidOptions(kind string, errs field.ErrorList) error {
	return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", errs)
}
