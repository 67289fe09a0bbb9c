package apiserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// send answers with v, as the client wants it; v may be JSON already, where
// that is not protobuf.
func (s *Server) send(w http.ResponseWriter, r *http.Request, f format, code int, v any) {
	if s.Audit != nil {
		s.note(r, v)
	}
	data, err := encode(r, f, v)
	if err != nil {
		s.unsendable(w, r, err)
		return
	}
	out := begin(w, r, f.header(), code, len(data))
	out.Write(data) // a client that went away is no error of ours
	out.Close()
}

// unsendable says why there is no answer; as JSON, which every Status has.
func (s *Server) unsendable(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Code >= http.StatusInternalServerError {
		s.Log.Error("cannot encode an answer", zap.String("path", r.URL.Path), zap.Error(err))
	}
	s.send(w, r, format{}, int(status.Code), status)
}

func encode(r *http.Request, f format, v any) ([]byte, error) {
	if f.media == typeProtobuf {
		return protobufOf(v)
	}
	data, ok := v.([]byte)
	var err error
	switch {
	case ok:
	case pretty(r):
		data, err = json.MarshalIndent(v, "", "  ")
	default:
		data, err = json.Marshal(v)
	}
	if err == nil && f.media == typeYAML {
		data, err = yaml.JSONToYAML(data)
	}
	return data, err
}

// pretty says that the answer is for somebody to read.
func pretty(r *http.Request) bool {
	return strings.Contains(r.URL.RawQuery, "pretty=") && r.URL.Query().Get("pretty") == "true"
}

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
	retryAfter(w, status)
	f, negotiateErr := negotiate(r)
	if negotiateErr != nil {
		f = format{}
	}
	s.send(w, r, f, int(status.Code), status)
}

// retryAfter says when to come again, where the Status does.
func retryAfter(w http.ResponseWriter, status *metav1.Status) {
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
}

// statusOf is the Status an error stands for; what is no API error is internal.
func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			api = apierrors.NewRequestEntityTooLargeError("limit is " + strconv.Itoa(maxBody))
		case tookTooLong(err):
			api = errTimeout()
		default:
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
