// Package patch applies the patches of the Kubernetes API to JSON.
package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// maxOperations limits the operations of a JSON patch (upstream: apiserver's maxJSONPatchOperations).
const maxOperations = 10000

// maxCopied limits what the copies of one JSON patch may add to an object, in bytes: each can double it
// (upstream: JSONPatchMaxCopyBytes).
const maxCopied = 3 << 20

// limitCopies sets the limit in the library's global variable.
var limitCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = maxCopied })

// Supported lists the media types that Apply supports.
var Supported = []string{
	string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType),
}

// Served returns the patch types that the server accepts.
func Served() []string {
	return append(slices.Clone(Supported), string(types.ApplyYAMLPatchType), string(types.ApplyCBORPatchType))
}

// Untyped returns the patch types for objects without a Go type, whose tags a strategic merge needs.
func Untyped() []string {
	return slices.DeleteFunc(Served(), func(typ string) bool { return typ == string(types.StrategicMergePatchType) })
}

// Apply applies data, a patch of type typ, to current, an object as JSON. typed is an object of the Go type whose tags
// a strategic merge uses. Apply returns API errors: 415 for an unknown type, 400 for an invalid patch, 422 for a patch
// that does not match the object.
func Apply(typ types.PatchType, current, data []byte, typed any) (out []byte, err error) {
	defer func() {
		// The libraries panic for some invalid patches, such as a merge key that is an object.
		if p := recover(); p != nil {
			out, err = nil, errUnprocessable(fmt.Errorf("the patch does not match the object: %v", p))
		}
	}()
	switch typ {
	case types.JSONPatchType:
		return applyJSON(current, data)
	case types.MergePatchType:
		return applyMerge(current, data)
	case types.StrategicMergePatchType:
		return applyStrategic(current, data, typed)
	}
	return nil, ErrUnsupported(typ, Served()...)
}

// ErrUnsupported returns the 415 error for a patch type that is not accepted.
func ErrUnsupported(typ types.PatchType, accepted ...string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format (%q) - accepted media types include: %s", typ,
			strings.Join(accepted, ", ")),
	}}
}

// errUnprocessable returns the 422 error for a patch that cannot be applied to this object: upstream's message and the
// cause, which upstream omits.
func errUnprocessable(err error) error {
	e := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0, false)
	e.ErrStatus.Message += ": " + err.Error()
	return e
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// Duplicates returns the fields that occur twice in a patch, and the unknown fields of a JSON patch's operations. It
// returns a 400 error for an invalid patch and a 415 error for an unknown type.
func Duplicates(typ types.PatchType, data []byte) ([]error, error) {
	var into any = &map[string]any{}
	switch {
	case !slices.Contains(Supported, string(typ)):
		return nil, ErrUnsupported(typ, Served()...)
	case typ == types.JSONPatchType:
		into = &[]operation{}
	}
	found, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		return nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	if typ == types.JSONPatchType {
		for i, e := range found {
			found[i] = fmt.Errorf("json patch %w", e)
		}
	}
	return found, nil
}

func applyJSON(current, data []byte) ([]byte, error) {
	p, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	if len(p) > maxOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(p)))
	}
	limitCopies()
	out, err := p.Apply(current)
	if err != nil {
		return nil, errUnprocessable(err)
	}
	return out, nil
}

func applyMerge(current, data []byte) ([]byte, error) {
	patch, err := object(data)
	if err != nil {
		return nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	into, err := object(current)
	if err != nil {
		return nil, apierrors.NewBadRequest("error applying patch: " + err.Error())
	}
	return json.Marshal(merge(into, patch))
}

// object decodes a JSON object without changing its numbers.
func object(data []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	if out == nil {
		return nil, errors.New("null is not a JSON object")
	}
	return out, nil
}

// merge applies RFC 7396: null removes a field, objects are merged, anything else is replaced. The library's function
// copies the text of each level for each level above it, and so takes forever for a deep patch.
func merge(into map[string]any, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	if into == nil {
		into = make(map[string]any, len(fields))
	}
	for name, value := range fields {
		if value == nil {
			delete(into, name)
			continue
		}
		inner, _ := into[name].(map[string]any)
		into[name] = merge(inner, value)
	}
	return into
}

func applyStrategic(current, data []byte, typed any) ([]byte, error) {
	var fields map[string]json.RawMessage
	err := json.Unmarshal(data, &fields)
	if err == nil && fields == nil {
		err = errors.New("null is not a JSON object")
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	out, err := strategicpatch.StrategicMergePatch(current, data, typed)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys),
		errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList):
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return nil, errUnprocessable(err)
}
