package apiserver

import (
	"bytes"
	"cmp"
	encjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"

	"monopod/apiserver/access/audit"
	"monopod/apiserver/client"
	"monopod/apiserver/codec/bounded"
	"monopod/apiserver/codec/quantity"
	"monopod/apiserver/registry"
)

// body reads the request's body as JSON, converted from YAML where the client
// says that it is that, or as protobuf. Without a Content-Type it is JSON, and
// with the one of `curl -d`.
func body(r *http.Request) ([]byte, error) {
	header := r.Header.Get("Content-Type")
	typ, _, err := mime.ParseMediaType(cmp.Or(header, typeJSON))
	if err != nil {
		return nil, apierrors.NewBadRequest("Content-Type: " + err.Error())
	}
	switch typ {
	case typeJSON, typeProtobuf, typeForm: // decode knows protobuf by its first bytes
		return readAll(r)
	case typeYAML, "text/yaml", "application/x-yaml":
		data, err := readAll(r)
		if err != nil {
			return nil, err
		}
		return toJSON(r, data)
	}
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format (%q) - accepted media types include: %s, %s, %s", typ, typeJSON, typeYAML, typeProtobuf),
	}}
}

// toJSON converts the one document of a YAML body.
func toJSON(r *http.Request, data []byte) ([]byte, error) {
	if err := accountOf(r.Context()).decode(r.Context(), bounded.WeighYAML(data)); err != nil {
		return nil, err
	}
	out, err := bounded.YAMLToJSON(data)
	if err != nil {
		return nil, apierrors.NewBadRequest("the body is not valid YAML: " + err.Error())
	}
	if len(out) > maxBody {
		return nil, errTooLarge(len(out))
	}
	return out, nil
}

// errTooLarge is 413 for what would not fit a request as JSON.
func errTooLarge(size int) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("as JSON it has %d bytes, limit is %d", size, maxBody))
}

// readAll reads the body once there is room for it; one that ends too early is the
// client's mistake.
func readAll(r *http.Request) ([]byte, error) {
	data, err := readBounded(r)
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && !tookTooLong(err) {
		return nil, apierrors.NewBadRequest("the body of the request cannot be read: " + err.Error())
	}
	return data, err
}

// readBounded reads the beginning of a body, and the rest when there is room for as
// much as the client says that it sends, or may send.
func readBounded(r *http.Request) ([]byte, error) {
	length := int(min(r.ContentLength, maxBody))
	if length < 0 { // it does not say
		length = maxBody
	}
	if length <= smallBody {
		return io.ReadAll(r.Body)
	}
	start := make([]byte, smallBody)
	n, err := io.ReadFull(r.Body, start)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && r.ContentLength < 0 {
		return start[:n], nil
	}
	if err != nil {
		return nil, err
	}
	if err := accountOf(r.Context()).receive(r.Context(), length); err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	out.Write(start)
	_, err = out.ReadFrom(r.Body)
	return out.Bytes(), err
}

// decode reads JSON or protobuf into obj. For JSON it follows the request's
// fieldValidation: Strict refuses unknown and duplicate fields, Warn (the
// default) names them in Warning headers.
func decode(w http.ResponseWriter, r *http.Request, data []byte, obj any) error {
	validation, err := fieldValidation(r)
	if err != nil {
		return err
	}
	account := accountOf(r.Context())
	if raw, ok := bytes.CutPrefix(data, protobufMagic); ok {
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
	found, err := decodeJSON(data, obj)
	if err != nil {
		return errNoJSON(data, err)
	}
	return validation.judge(w, found)
}

// errNoJSON says what to do where the body may be YAML.
func errNoJSON(data []byte, err error) error {
	if !encjson.Valid(data) && !utilyaml.IsJSONBuffer(data) {
		err = fmt.Errorf("%w: the body is not JSON; for YAML set the header Content-Type: %s", err, typeYAML)
	}
	return errUnrecognized(err)
}

// decodeJSON reads data into obj and says what of it is unknown or occurs twice.
func decodeJSON(data []byte, obj any) (found []error, err error) {
	if err := quantity.CheckJSON(data, obj); err != nil {
		return nil, err
	}
	return json.UnmarshalStrict(data, obj)
}

func errUnrecognized(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized: %v", err))
}

// strictness is what a request says of fields that are unknown or occur twice.
type strictness string

// fieldValidation reads it; without a word it is Warn.
func fieldValidation(r *http.Request) (strictness, error) {
	asked := r.URL.Query().Get("fieldValidation")
	return strictness(asked), errOptions(r, metavalidation.ValidateFieldValidation(field.NewPath("fieldValidation"), asked))
}

// judge refuses a body for such fields, or warns of them.
func (s strictness) judge(w http.ResponseWriter, found []error) error {
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
	warn(w.Header(), texts)
	return nil
}

const (
	// maxWarning and maxWarnings bound one warning and all of an answer's, in
	// characters (upstream: endpoints/filters' truncateAtTotalRunes and
	// truncateItemRunes).
	maxWarning  = 256
	maxWarnings = 4096
)

// warn puts texts into h, each once: a write may run again.
func warn(h http.Header, texts []string) {
	for _, text := range texts {
		if !addWarning(h, text) {
			return
		}
	}
}

// headline is text as a header can carry it: short, printable, in one line.
func headline(text string) string {
	runes := []rune(strings.ToValidUTF8(text, "\uFFFD"))
	for i, c := range runes {
		if unicode.IsControl(c) {
			runes[i] = ' '
		}
	}
	return string(runes[:min(len(runes), maxWarning)])
}

// decodeProtobuf reads the envelope and what is in it; what it says of its kind
// is left in obj.
func decodeProtobuf(r *http.Request, account *account, data []byte, obj any) error {
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(data); err != nil {
		return apierrors.NewBadRequest("the body is not valid protobuf: " + err.Error())
	}
	m, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("%T has no protobuf form", obj))
	}
	if err := account.admitProtobuf(r, envelope.Raw, obj); err != nil {
		return err
	}
	if err := quantity.CheckProtobuf(envelope.Raw, obj); err != nil {
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

// decodeObject reads the body of a write to the object or one of its
// subresources and checks that it is what the path names.
func decodeObject(w http.ResponseWriter, r *http.Request, t target, data []byte) (registry.Object, error) {
	obj, kind := t.shape()
	if err := decode(w, r, data, obj); err != nil {
		return nil, err
	}
	if err := checkKind(obj.GetObjectKind().GroupVersionKind(), kind); err != nil {
		return nil, err
	}
	return obj, checkName(obj, t.ref, t.res.Namespaced)
}

// shape is an empty object of what writes to the target take, and its kind.
func (t target) shape() (registry.Object, schema.GroupVersionKind) {
	if t.ref.Subresource == "scale" {
		return &autoscalingv1.Scale{}, autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	}
	return t.res.New(), t.res.GVK()
}

// checkKind refuses an object of another kind than the path is about. A body
// that does not say is taken at the path's word.
func checkKind(got, want schema.GroupVersionKind) error {
	if got.Empty() || got == want {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf(
		"the object provided is a %s of %s, this path takes a %s of %s", or(got.Kind, "kindless object"), or(got.GroupVersion().String(), "no apiVersion"), want.Kind, want.GroupVersion()))
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// checkName completes the object's name and namespace from the path, or refuses
// an object that says otherwise.
func checkName(obj metav1.Object, ref client.Ref, namespaced bool) error {
	switch {
	case !namespaced:
	case ref.Namespace == "" && obj.GetNamespace() == "":
		return apierrors.NewBadRequest("metadata.namespace: Required value: a path without a namespace needs one in the object")
	case ref.Namespace == "":
	case obj.GetNamespace() == "":
		obj.SetNamespace(ref.Namespace)
	case obj.GetNamespace() != ref.Namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	switch {
	case ref.Name == "":
	case obj.GetName() == "":
		obj.SetName(ref.Name)
	case obj.GetName() != ref.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), ref.Name))
	}
	return nil
}

// mediaType is a Content-Type without its parameters.
func mediaType(header string) string {
	typ, _, err := mime.ParseMediaType(header)
	if err != nil {
		return header
	}
	return typ
}

// patchBody reads a patch, which is JSON whatever its type.
func patchBody(r *http.Request) ([]byte, error) {
	data, err := readAll(r)
	if err != nil {
		return nil, err
	}
	if encjson.Valid(data) {
		return data, nil
	}
	return nil, apierrors.NewBadRequest("error decoding patch: the body is not valid JSON")
}
