package codec

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/audit"
)

// Responder sends responses. Log is required.
type Responder struct {
	Log     *zap.Logger
	Clock   clock.PassiveClock // for ages in tables
	Audited bool               // the response is also recorded in the request's audit record
	// MaxWhole is the maximum size in bytes of a list that must be in memory as a whole, for the audit log or as protobuf
	// metadata; 0: 64 MiB.
	MaxWhole int
}

// Send sends v in the format f. Unless f is protobuf, v may be encoded JSON.
func (a *Responder) Send(w http.ResponseWriter, r *http.Request, f Format, code int, v any) {
	if a.Audited {
		recordResponse(r, v)
	}
	data, err := encode(r, f, v)
	if err != nil {
		a.failEncoding(w, r, err)
		return
	}
	out := begin(w, r, f.Header(), code, len(data))
	out.Write(data) // the client may have left
	out.Close()
}

// failEncoding sends the error of a response that cannot be encoded, as JSON.
func (a *Responder) failEncoding(w http.ResponseWriter, r *http.Request, err error) {
	status := StatusOf(err)
	if status.Code >= http.StatusInternalServerError {
		a.Log.Error("failed to encode a response", zap.String("path", r.URL.Path), zap.Error(err))
	}
	a.Send(w, r, Format{}, int(status.Code), status)
}

func encode(r *http.Request, f Format, v any) ([]byte, error) {
	if f.Media == TypeProtobuf {
		return Protobuf(v)
	}
	as := layoutOf(r, f)
	data, ok := v.([]byte)
	if ok && as == Pretty {
		return data, nil // it is already indented
	}
	var err error
	if !ok {
		if data, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return as.Lay("", data)
}

// CBOREvent appends a watch event to b. object is JSON.
func CBOREvent(b []byte, typ watch.EventType, object []byte) []byte {
	event := fmt.Appendf(make([]byte, 0, len(object)+64), `{"type":%q,"object":%s}`, typ, object)
	out, err := FromJSON(event)
	if err != nil { // impossible for valid JSON
		return b
	}
	return append(append(b, Prefix...), out...)
}

// layoutOf returns the layout of a response.
func layoutOf(r *http.Request, f Format) Layout {
	switch {
	case f.Media == TypeYAML:
		return YAML
	case f.Media == TypeCBOR:
		return CBOR
	case pretty(r):
		return Pretty
	}
	return Compact
}

// pretty reports whether the response is indented.
func pretty(r *http.Request) bool {
	return strings.Contains(r.URL.RawQuery, "pretty=") && r.URL.Query().Get("pretty") == "true"
}

// Fail sends err as a Status.
func (a *Responder) Fail(w http.ResponseWriter, r *http.Request, err error) {
	status := StatusOf(err)
	if status.Code >= http.StatusInternalServerError && status.Code != http.StatusGatewayTimeout {
		a.Log.Warn("request failed", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.Error(err))
	}
	RetryAfter(w, status)
	f, negotiateErr := Negotiate(r)
	if negotiateErr != nil {
		f = Format{}
	}
	a.Send(w, r, f, int(status.Code), status)
}

// recordResponse records the response v in the audit log.
func recordResponse(r *http.Request, v any) {
	record := audit.Of(r.Context())
	if status, ok := v.(*metav1.Status); ok {
		record.Failed(status)
	}
	if !record.Wants(audit.RequestResponse) {
		return
	}
	data, ok := v.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(v); err != nil {
			return // Send sends an error instead
		}
	}
	record.Answered(data)
}

func (a *Responder) recordOf(r *http.Request) *audit.Record {
	if !a.Audited {
		return nil
	}
	return audit.Of(r.Context())
}

// Indented returns v as indented JSON.
func Indented(v any) any {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return v
	}
	return append(data, '\n')
}
