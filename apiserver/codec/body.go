package codec

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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/bounded"
)

// Body reads the request's body and returns JSON or protobuf. It converts YAML and CBOR to JSON. A body without a
// Content-Type, or with that of `curl -d`, is JSON.
func Body(r *http.Request) ([]byte, error) {
	header := r.Header.Get("Content-Type")
	typ, _, err := mime.ParseMediaType(cmp.Or(header, TypeJSON))
	if err != nil {
		return nil, apierrors.NewBadRequest("Content-Type: " + err.Error())
	}
	switch typ {
	case TypeJSON, TypeProtobuf, typeForm: // decode detects protobuf by its first bytes
		return ReadAll(r)
	case TypeYAML, "text/yaml", "application/x-yaml":
		data, err := ReadAll(r)
		if err != nil {
			return nil, err
		}
		return toJSON(r, data)
	case TypeCBOR:
		data, err := ReadAll(r)
		if err != nil {
			return nil, err
		}
		return cborToJSON(r, data)
	}
	return nil, errMedia(typ, TypeJSON, TypeYAML, TypeProtobuf, TypeCBOR)
}

// errMedia returns the 415 error for a body of the media type.
func errMedia(typ string, accepted ...string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format (%q) - accepted media types include: %s", typ,
			strings.Join(accepted, ", ")),
	}}
}

// toJSON converts a YAML body, which must have one document.
func toJSON(r *http.Request, data []byte) ([]byte, error) {
	if err := AccountOf(r.Context()).decode(r.Context(), bounded.WeighYAML(data)); err != nil {
		return nil, err
	}
	out, err := bounded.YAMLToJSON(data)
	if err != nil {
		return nil, apierrors.NewBadRequest("the body is not valid YAML: " + err.Error())
	}
	if len(out) > MaxBody {
		return nil, errTooLarge(len(out))
	}
	return out, nil
}

// cborToJSON converts a CBOR body.
func cborToJSON(r *http.Request, data []byte) ([]byte, error) {
	if err := AccountOf(r.Context()).decode(r.Context(), Weight(data)); err != nil {
		return nil, err
	}
	out, err := ToJSON(data)
	if err != nil {
		return nil, apierrors.NewBadRequest("the body is not valid CBOR: " + err.Error())
	}
	if len(out) > MaxBody {
		return nil, errTooLarge(len(out))
	}
	return out, nil
}

// errTooLarge returns the 413 error for a body that is too large as JSON.
func errTooLarge(size int) error {
	return apierrors.NewRequestEntityTooLargeError(
		fmt.Sprintf("converted to JSON it has %d bytes, limit is %d", size, MaxBody))
}

// ReadAll reads the body when memory for it is available. It returns a 400 error for a body that ends early.
func ReadAll(r *http.Request) ([]byte, error) {
	data, err := readBounded(r)
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown &&
		!tookTooLong(err) {
		return nil, apierrors.NewBadRequest("the body of the request cannot be read: " + err.Error())
	}
	return data, err
}

// readBounded reads the start of a body, then waits until memory for the declared length, or else for the maximum, is
// available, and reads the rest.
func readBounded(r *http.Request) ([]byte, error) {
	length := int(min(r.ContentLength, MaxBody))
	if length < 0 { // the client does not declare it
		length = MaxBody
	}
	if length <= SmallBody {
		out := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
		_, err := out.ReadFrom(r.Body)
		return out.Bytes(), err
	}
	start := make([]byte, SmallBody)
	n, err := io.ReadFull(r.Body, start)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && r.ContentLength < 0 {
		return start[:n], nil
	}
	if err != nil {
		return nil, err
	}
	if err := AccountOf(r.Context()).receive(r.Context(), length); err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	out.Write(start)
	_, err = out.ReadFrom(r.Body)
	return out.Bytes(), err
}

// MediaType returns a Content-Type without its parameters.
func MediaType(header string) string {
	typ, _, err := mime.ParseMediaType(header)
	if err != nil {
		return header
	}
	return typ
}

// PatchBody reads a patch, which is JSON for all patch types except apply.
func PatchBody(r *http.Request) ([]byte, error) {
	data, err := ReadAll(r)
	if err != nil {
		return nil, err
	}
	if encjson.Valid(data) {
		return data, nil
	}
	return nil, apierrors.NewBadRequest("error decoding patch: the body is not valid JSON")
}

// SmallBody is the maximum length of bodies that are read without waiting for memory, in bytes.
const SmallBody = 64 << 10

// MaxBody is the maximum size of a request body, in bytes (upstream: 3 MiB).
const MaxBody = 3 << 20
