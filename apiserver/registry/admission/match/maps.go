package match

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
)

// maps lets upstream's patches make maps, whatever the kind: Replace turns them into objects, with this server's
// checks.
type maps struct{}

var _ upstream.ObjectInterfaces = maps{}

// New implements runtime.ObjectCreater.
func (maps) New(schema.GroupVersionKind) (runtime.Object, error) {
	return &unstructured.Unstructured{}, nil
}

// ObjectKinds implements runtime.ObjectTyper: no type is known.
func (maps) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return nil, false, runtime.NewNotRegisteredErrForKind("match", obj.GetObjectKind().GroupVersionKind())
}

// Recognizes implements runtime.ObjectTyper.
func (maps) Recognizes(schema.GroupVersionKind) bool { return false }

// GetObjectCreater implements upstream.ObjectInterfaces.
func (m maps) GetObjectCreater() runtime.ObjectCreater { return m }

// GetObjectTyper implements upstream.ObjectInterfaces.
func (m maps) GetObjectTyper() runtime.ObjectTyper { return m }

// GetObjectDefaulter implements upstream.ObjectInterfaces; patches do not call it.
func (maps) GetObjectDefaulter() runtime.ObjectDefaulter { return nil }

// GetObjectConvertor implements upstream.ObjectInterfaces; patches do not call it.
func (maps) GetObjectConvertor() runtime.ObjectConvertor { return nil }

// GetEquivalentResourceMapper implements upstream.ObjectInterfaces; patches do not call it.
func (maps) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return nil }
