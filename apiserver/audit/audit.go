// Package audit writes the audit log: for each stage of a request one line of JSON, an Event of audit.k8s.io/v1, at the
// level that a Policy sets.
//
// Log.Begin decides whether and at what level a request is recorded. It returns a Record, which is passed in the
// request's context, collects request and response, and writes a line at each stage.
package audit

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"sync"

	"github.com/google/uuid"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
)

const apiVersion = "audit.k8s.io/v1"

// Log writes audit events. Use New.
type Log struct {
	policy *Policy
	clock  clock.PassiveClock
	log    *zap.Logger

	mu  sync.Mutex // guards writes to out, so that lines do not mix
	out io.Writer
}

// New returns a Log that writes to out what policy sets. It logs failed writes to log.
func New(out io.Writer, policy *Policy, c clock.PassiveClock, log *zap.Logger) *Log {
	return &Log{policy: policy, clock: c, log: log, out: out}
}

// Caller describes the client of a request.
type Caller struct {
	URI, UserAgent string
	SourceIPs      []string
	// Actor is the user who impersonates the request's user; nil: no impersonation.
	Actor *auth.User
	// ID is the audit ID that the client sent; empty: a new one is generated.
	ID string
}

// Record is the audit record of one request. All methods of a nil Record do nothing. Only the request's goroutine may
// use it.
type Record struct {
	log       *Log
	decision  Decision
	event     event
	failed    metav1.Status
	annotated int // bytes of annotations
}

// Begin returns the record of a request, or nil if the policy does not record it.
func (l *Log) Begin(a auth.Attributes, c Caller) *Record {
	d := l.policy.Decide(a)
	if d.Level == None {
		return nil
	}
	r := &Record{log: l, decision: d, event: newEvent(a, c, d.Level)}
	if r.event.AuditID == "" {
		r.event.AuditID = uuid.NewString()
	}
	r.event.RequestReceivedTimestamp = metav1.NewMicroTime(l.clock.Now())
	r.write(RequestReceived)
	return r
}

// ID returns the audit ID, which is sent to the client.
func (r *Record) ID() string { return r.event.AuditID }

// Wants reports whether the request is recorded at this level or above.
func (r *Record) Wants(level Level) bool {
	return r != nil && (r.decision.Level == level || r.decision.Level == RequestResponse)
}

// Sent records the request body, which is JSON.
func (r *Record) Sent(data []byte) {
	if r.Wants(Request) && json.Valid(data) { // the handler refuses invalid JSON
		r.event.RequestObject = r.object(data)
	}
}

// Answered records the response body, which is JSON.
func (r *Record) Answered(data []byte) {
	if r.Wants(RequestResponse) {
		r.event.ResponseObject = r.object(data)
	}
}

// Decided records the authorization decision.
func (r *Record) Decided(allowed bool, reason string) {
	if r == nil {
		return
	}
	decision := "forbid"
	if allowed {
		decision = "allow"
	}
	if r.event.Annotations == nil {
		r.event.Annotations = map[string]string{}
	}
	r.event.Annotations["authorization.k8s.io/decision"] = decision
	r.event.Annotations["authorization.k8s.io/reason"] = reason
}

// maxAnnotations limits the annotations that admission, including webhooks, adds to one event, in bytes.
const maxAnnotations = 64 << 10

// Annotate records an annotation of admission. It does not replace an existing annotation, because a write may run
// again.
func (r *Record) Annotate(key, value string) {
	if r == nil || r.event.Annotations[key] != "" {
		return
	}
	if r.annotated += len(key) + len(value); r.annotated > maxAnnotations {
		return
	}
	if r.event.Annotations == nil {
		r.event.Annotations = map[string]string{}
	}
	r.event.Annotations[key] = value
}

// Started writes the stage ResponseStarted of a watch or stream.
func (r *Record) Started(code int) {
	if r == nil {
		return
	}
	r.event.ResponseStatus = &metav1.Status{Code: int32(code)}
	r.write(ResponseStarted)
}

// Failed records the Status of an error response.
func (r *Record) Failed(status *metav1.Status) {
	if r != nil {
		r.failed = metav1.Status{Status: status.Status, Reason: status.Reason, Message: status.Message}
	}
}

// Ended writes the stage ResponseComplete.
func (r *Record) Ended(code int) {
	if r == nil {
		return
	}
	r.failed.Code = int32(code)
	r.event.ResponseStatus = &r.failed
	r.write(ResponseComplete)
}

// Panicked writes the stage Panic.
func (r *Record) Panicked() {
	if r == nil {
		return
	}
	r.event.ResponseStatus = &metav1.Status{Code: 500, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonInternalError}
	r.write(Panic)
}

func (r *Record) write(stage Stage) {
	if slices.Contains(r.decision.OmitStages, stage) {
		return
	}
	r.event.Stage, r.event.StageTimestamp = stage, metav1.NewMicroTime(r.log.clock.Now())
	line, err := json.Marshal(r.event)
	if err == nil {
		err = r.log.append(append(line, '\n'))
	}
	if err != nil {
		r.log.log.Error("failed to write to the audit log", zap.String("auditID", r.event.AuditID), zap.Error(err))
	}
}

func (l *Log) append(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.out.Write(line)
	return err
}

// object returns a copy of data, without managedFields if the policy omits them. It is a copy because data may not
// outlive the request.
func (r *Record) object(data []byte) json.RawMessage {
	if !r.decision.OmitManagedFields {
		return slices.Clone(data)
	}
	var obj any
	if json.Unmarshal(data, &obj) != nil {
		return nil
	}
	omitManagedFields(obj)
	out, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	return out
}

// omitManagedFields removes managedFields from an object, or from the items of a list.
func omitManagedFields(obj any) {
	fields, ok := obj.(map[string]any)
	if !ok {
		return
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	if items, ok := fields["items"].([]any); ok {
		for _, item := range items {
			omitManagedFields(item)
		}
	}
}

type recordKey struct{}

// WithRecord returns ctx with the record.
func WithRecord(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

// Of returns the record in ctx, or nil if there is none.
func Of(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}
