package match

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
)

// mapObjects makes upstream's patches return maps for all kinds. Replace decodes the maps with this server's checks.
type mapObjects struct{}

var _ upstream.ObjectInterfaces = mapObjects{}

// New implements runtime.ObjectCreater.
func (mapObjects) New(schema.GroupVersionKind) (runtime.Object, error) {
	return &unstructured.Unstructured{}, nil
}

// ObjectKinds implements runtime.ObjectTyper: no type is known.
func (mapObjects) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return nil, false, runtime.NewNotRegisteredErrForKind("match", obj.GetObjectKind().GroupVersionKind())
}

// Recognizes implements runtime.ObjectTyper.
func (mapObjects) Recognizes(schema.GroupVersionKind) bool { return false }

// GetObjectCreater implements upstream.ObjectInterfaces.
func (m mapObjects) GetObjectCreater() runtime.ObjectCreater { return m }

// GetObjectTyper implements upstream.ObjectInterfaces.
func (m mapObjects) GetObjectTyper() runtime.ObjectTyper { return m }

// GetObjectDefaulter implements upstream.ObjectInterfaces; patches do not call it.
func (mapObjects) GetObjectDefaulter() runtime.ObjectDefaulter { return nil }

// GetObjectConvertor implements upstream.ObjectInterfaces; patches do not call it.
func (mapObjects) GetObjectConvertor() runtime.ObjectConvertor { return nil }

// GetEquivalentResourceMapper implements upstream.ObjectInterfaces; patches do not call it.
func (mapObjects) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return nil }
