package apiserver

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const (
	typeJSON = "application/json"
	typeYAML = "application/yaml"

	// typeProtobuf is read, but never written: every client that asks for it takes
	// JSON too.
	typeProtobuf = "application/vnd.kubernetes.protobuf"
)

// format is how a client wants to be answered.
type format struct {
	yaml bool
	// contentType is what the answer calls itself; empty: JSON or YAML.
	contentType string
	as          string // "", "Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"
}

// negotiate takes the first media type of the Accept header that is served;
// JSON when there is no header. as lists the shapes this request can have.
func negotiate(r *http.Request, as ...string) (format, error) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return format{}, nil
	}
	for part := range strings.SplitSeq(accept, ",") {
		if f, ok := acceptable(part, as); ok {
			return f, nil
		}
	}
	return format{}, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + typeJSON + ", " + typeYAML,
	}}
}

// negotiateWrite is negotiate for a request that writes, which has to know how
// to answer before it does.
func negotiateWrite(r *http.Request) (format, error) {
	return negotiate(r, "Table", "PartialObjectMetadata")
}

// versions are the versions of the shapes that are served.
var versions = map[string]string{"APIGroupDiscoveryList": "v2"}

func acceptable(part string, as []string) (format, bool) {
	typ, params, err := mime.ParseMediaType(part)
	if err != nil {
		return format{}, false
	}
	f := format{as: params["as"]}
	if f.as != "" && !slices.Contains(as, f.as) {
		return f, false
	}
	if want, ok := versions[f.as]; ok && params["v"] != want {
		return f, false
	}
	switch typ {
	case typeJSON, "*/*", "application/*":
		return f, true
	case typeYAML, "text/yaml":
		f.yaml = true
		return f, f.as == ""
	}
	return f, false
}

// send answers with v as JSON or YAML; v may be JSON already.
func (s *Server) send(w http.ResponseWriter, r *http.Request, f format, code int, v any) {
	data, ok := v.([]byte)
	var err error
	switch {
	case ok:
	case pretty(r):
		data, err = json.MarshalIndent(v, "", "  ")
	default:
		data, err = json.Marshal(v)
	}
	if err == nil && f.yaml {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		s.Log.Error("cannot encode an answer", zap.String("path", r.URL.Path), zap.Error(err))
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	typ := or(f.contentType, typeJSON)
	if f.yaml {
		typ = typeYAML
	}
	w.Header().Set("Content-Type", typ)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(code)
	w.Write(data) // a client that went away is no error of ours
}

// pretty says that the answer is for somebody to read.
func pretty(r *http.Request) bool { return r.URL.Query().Get("pretty") == "true" }

// success is the Status of a request that has nothing else to answer.
func success(code int32, details *metav1.StatusDetails) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess, Code: code, Details: details,
	}
}

// fail answers with err as a Status.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Code >= http.StatusInternalServerError && status.Code != http.StatusGatewayTimeout {
		s.Log.Warn("request failed", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.Error(err))
	}
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	f, negotiateErr := negotiate(r)
	if negotiateErr != nil {
		f = format{}
	}
	s.send(w, r, f, int(status.Code), status)
}

// statusOf is the Status an error stands for; what is no API error is internal.
func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			api = apierrors.NewRequestEntityTooLargeError("limit is " + strconv.Itoa(maxBody))
		} else {
			api = apierrors.NewInternalError(err)
		}
	}
	status := api.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	return &status
}

func errNotFoundPath() error {
	e := apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
	e.ErrStatus.Message = "the server could not find the requested resource"
	return e
}

func chiResource(r *http.Request) schema.GroupResource {
	return schema.GroupResource{Group: chi.URLParam(r, "group"), Resource: chi.URLParam(r, "resource")}
}
