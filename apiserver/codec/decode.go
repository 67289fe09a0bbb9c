package codec

import (
	"bytes"
	"cmp"
	"context"
	encjson "encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"

	"monopod/apiserver/audit"
	"monopod/apiserver/kit/bounded"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/request"
)

// Decode decodes JSON or protobuf into obj. For JSON it applies the request's fieldValidation: Strict refuses unknown
// and duplicate fields, Warn (the default) lists them in Warning headers.
func Decode(w http.ResponseWriter, r *http.Request, data []byte, obj any) error {
	return decode(w, r, data, obj, func(err error) error {
		if apierrors.IsBadRequest(err) {
			return err
		}
		return errUnrecognized(err)
	})
}

// decode is Decode, with refuse, which returns the error for JSON that does not match the type of obj.
func decode(w http.ResponseWriter, r *http.Request, data []byte, obj any, refuse func(error) error) error {
	validation, err := FieldValidation(r)
	if err != nil {
		return err
	}
	account := AccountOf(r.Context())
	if raw, ok := bytes.CutPrefix(data, Magic); ok {
		err := decodeProtobuf(r, account, raw, obj)
		if record := audit.Of(r.Context()); err == nil && record.Wants(audit.Request) {
			if data, err := encjson.Marshal(obj); err == nil {
				record.Sent(data)
			}
		}
		return err
	}
	if err := account.admitJSON(r, data, obj); err != nil {
		return err
	}
	audit.Of(r.Context()).Sent(data)
	found, err := DecodeJSON(r.Context(), data, obj)
	if err != nil {
		return errNoJSON(data, err, refuse)
	}
	if err := validation.Judge(w, found); err != nil {
		return refuse(err)
	}
	return nil
}

// errNoJSON returns refuse's error for JSON of a wrong type, and an error with a hint for a body that may be YAML.
func errNoJSON(data []byte, err error, refuse func(error) error) error {
	switch {
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return err
	case encjson.Valid(data):
		return refuse(err)
	case !utilyaml.IsJSONBuffer(data):
		err = fmt.Errorf("%w: the body is not JSON; for YAML set the header Content-Type: %s", err, TypeYAML)
	}
	return errUnrecognized(err)
}

// strict is an object that decodes JSON itself and returns unknown and duplicate fields.
type strict interface {
	UnmarshalStrict(data []byte, admit func(bytes int) error) (found []error, err error)
}

// DecodeJSON decodes data into obj and returns unknown and duplicate fields. The account of ctx must have admitted
// data. It also admits the values that the defaults of a custom kind add.
func DecodeJSON(ctx context.Context, data []byte, obj any) (found []error, err error) {
	if o, ok := obj.(strict); ok {
		return o.UnmarshalStrict(data, func(bytes int) error { return AccountOf(ctx).admitMore(ctx, bytes) })
	}
	if err := bounded.CheckJSONQuantities(data, obj); err != nil {
		return nil, err
	}
	return json.UnmarshalStrict(data, obj)
}

func errUnrecognized(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized: %v", err))
}

// Strictness is a request's fieldValidation.
type Strictness string

// FieldValidation returns the request's fieldValidation; the default is Warn.
func FieldValidation(r *http.Request) (Strictness, error) {
	value := r.URL.Query().Get("fieldValidation")
	return Strictness(value), request.ErrOptions(r,
		metavalidation.ValidateFieldValidation(field.NewPath("fieldValidation"), value))
}

// Judge returns an error for unknown and duplicate fields, or sends warnings about them.
func (s Strictness) Judge(w http.ResponseWriter, found []error) error {
	if len(found) == 0 || s == metav1.FieldValidationIgnore {
		return nil
	}
	texts := make([]string, len(found))
	for i, e := range found {
		texts[i] = e.Error()
	}
	if s == metav1.FieldValidationStrict {
		return apierrors.NewBadRequest("strict decoding error: " + strings.Join(texts, ", "))
	}
	for _, text := range texts {
		if !AddWarning(w.Header(), text) {
			break
		}
	}
	return nil
}

// decodeProtobuf decodes the envelope and its object. It sets the kind of obj from the envelope.
func decodeProtobuf(r *http.Request, account *Account, data []byte, obj any) error {
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(data); err != nil {
		return apierrors.NewBadRequest("the body is not valid protobuf: " + err.Error())
	}
	m, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return errMedia(TypeProtobuf, TypeJSON, TypeYAML)
	}
	if err := account.admitProtobuf(r, envelope.Raw, obj); err != nil {
		return err
	}
	if err := bounded.CheckProtobufQuantities(envelope.Raw, shape(obj)); err != nil {
		return errUnrecognized(err)
	}
	if err := m.Unmarshal(envelope.Raw); err != nil {
		return apierrors.NewBadRequest("the object is not valid protobuf: " + err.Error())
	}
	if o, ok := obj.(runtime.Object); ok {
		o.GetObjectKind().SetGroupVersionKind(envelope.GroupVersionKind())
	}
	return nil
}

// DecodeObject decodes the body of a write to an object or a subresource, and checks that it matches the path.
func DecodeObject(w http.ResponseWriter, r *http.Request, data []byte, into Expected) (kind.Object, error) {
	obj := into.New()
	refuse := func(err error) error { return into.refuse(data, err) }
	if err := decode(w, r, data, obj, refuse); err != nil {
		return nil, err
	}
	if err := CheckKind(obj.GetObjectKind().GroupVersionKind(), into.Kind); err != nil {
		return nil, err
	}
	return obj, CheckName(obj, into.Ref, into.Namespaced)
}

// Expected contains what the path of a write requires: the type of its body, and its kind, name and namespace.
type Expected struct {
	New        func() kind.Object
	Kind       schema.GroupVersionKind
	Ref        client.Ref
	Namespaced bool
}

// refuse returns upstream's error for a body that does not match the kind. It names the kind, which helps in a file of
// many objects.
func (e Expected) refuse(data []byte, err error) error {
	gvk := e.Kind
	var body struct{ Kind, APIVersion string }
	if encjson.Unmarshal(data, &body) == nil && body.Kind != "" {
		gvk = schema.FromAPIVersionAndKind(body.APIVersion, body.Kind)
	}
	return apierrors.NewBadRequest(
		fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, e.Kind.Kind, err))
}

// CheckKind refuses an object of another kind than the path's. A body without a kind is accepted.
func CheckKind(got, want schema.GroupVersionKind) error {
	if got.Empty() || got == want {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf(
		"the object provided is a %s of %s, this path requires a %s of %s", cmp.Or(got.Kind, "kindless object"),
		cmp.Or(got.GroupVersion().String(), "no apiVersion"), want.Kind, want.GroupVersion()))
}

// CheckName sets the object's name and namespace from the path, or returns an error if the object has others.
func CheckName(obj metav1.Object, ref client.Ref, namespaced bool) error {
	switch {
	case !namespaced:
	case ref.Namespace == "" && obj.GetNamespace() == "":
		return apierrors.NewBadRequest(
			"metadata.namespace: Required value: a path without a namespace needs one in the object")
	case ref.Namespace == "":
	case obj.GetNamespace() == "":
		obj.SetNamespace(ref.Namespace)
	case obj.GetNamespace() != ref.Namespace:
		return apierrors.NewBadRequest(
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	switch {
	case ref.Name == "":
	case obj.GetName() == "":
		obj.SetName(ref.Name)
	case obj.GetName() != ref.Name:
		return apierrors.NewBadRequest(
			fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), ref.Name))
	}
	return nil
}

// ApplyJSON converts the body of an apply, which is YAML or CBOR, to JSON, and returns the duplicate fields of YAML.
func ApplyJSON(r *http.Request, data []byte) (out []byte, duplicates []error, err error) {
	if MediaType(r.Header.Get("Content-Type")) == string(types.ApplyCBORPatchType) {
		out, err = cborToJSON(r, data)
		return out, nil, err
	}
	if encjson.Valid(data) {
		return data, nil, nil
	}
	if err := AccountOf(r.Context()).decode(r.Context(), bounded.WeighYAML(data)); err != nil {
		return nil, nil, err
	}
	if err := bounded.Duplicates(data); err != nil {
		duplicates = append(duplicates, err)
	}
	if out, err = toJSON(r, data); apierrors.IsBadRequest(err) {
		err = apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	return out, duplicates, err
}

// DecodePatch decodes an object without a type, and returns duplicate fields.
func DecodePatch(data []byte) (obj *unstructured.Unstructured, duplicates []error, err error) {
	obj = &unstructured.Unstructured{}
	duplicates, err = json.UnmarshalStrict(data, &obj.Object)
	if err == nil && obj.Object == nil {
		err = fmt.Errorf("%s is not an object", bytes.TrimSpace(data))
	}
	return obj, duplicates, err
}

// CheckAmounts refuses quantities that take too long to parse, even if the body contains them as escapes.
func CheckAmounts(obj *unstructured.Unstructured, typed any) error {
	data, err := encjson.Marshal(obj.Object)
	if err == nil {
		err = bounded.CheckJSONQuantities(data, typed)
	}
	if err != nil {
		return errUnrecognized(err)
	}
	return nil
}

// ErrPatched returns upstream's 422 error for a patch whose result, text, is not a valid object.
func ErrPatched(text []byte, err error) error {
	message := err.Error()
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		message = api.Status().Message
	}
	return apierrors.NewInvalid(schema.GroupKind{}, "",
		field.ErrorList{field.Invalid(field.NewPath("patch"), string(text), message)})
}

// DecodePatched decodes the result of a patch, and returns unknown fields.
func DecodePatched(r *http.Request, text []byte, into Expected) (kind.Object, []error, error) {
	obj := into.New()
	if err := AccountOf(r.Context()).check(text, obj); err != nil {
		return nil, nil, err
	}
	found, err := DecodeJSON(r.Context(), text, obj)
	if err != nil {
		return nil, nil, err
	}
	return obj, found, CheckKind(obj.GetObjectKind().GroupVersionKind(), into.Kind)
}
