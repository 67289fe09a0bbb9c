package kind

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"monopod/apiserver/registry/definitions"
)

// Schema describes the objects of a kind without a Go type.
type Schema interface {
	// Definitions returns the OpenAPI definitions of the kind and its list. They may refer to package definitions.
	Definitions() ([]*definitions.Definition, error)
	// Revision identifies the result of Definitions.
	Revision() string
	// Types returns the converter by which server-side apply merges objects.
	Types() (managedfields.TypeConverter, error)
}

// Packed is an object that keeps a part of itself encoded. Readers of the whole object get it in its upstream Go type.
type Packed interface {
	Object
	// Typed returns a decoded copy.
	Typed() (Object, error)
	// SetTyped sets the object to obj, which the caller must not use afterwards.
	SetTyped(obj Object) error
}

// Typed returns obj in its upstream Go type: decoded if it is Packed, otherwise unchanged.
func Typed(obj Object) (Object, error) {
	if p, ok := obj.(Packed); ok {
		return p.Typed()
	}
	return obj, nil
}

// Untyped is an object of a kind with a Schema.
type Untyped interface {
	Object
	// Unstructured returns a decoded copy.
	Unstructured() (*unstructured.Unstructured, error)
	// FromUnstructured sets the object to the content of u, which the caller must not use afterwards.
	FromUnstructured(u *unstructured.Unstructured) error
	// Equal reports whether both objects are equal, including their metadata.
	Equal(other Object) bool
}
