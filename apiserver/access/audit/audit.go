// Package audit writes down who did what: one line of JSON for each stage of a
// request, an Event of audit.k8s.io/v1, as much of it as a Policy says.
//
// A Log decides, by Begin, whether and how a request is recorded; the Record it
// returns travels in the request's context, gathers what the server reads and
// answers, and writes a line at each stage.
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

	"monopod/apiserver/access/auth"
)

const apiVersion = "audit.k8s.io/v1"

// Log writes records, one after the other. It is made by New.
type Log struct {
	policy *Policy
	clock  clock.PassiveClock
	log    *zap.Logger

	mu  sync.Mutex // guards out, over its writes: lines do not mix
	out io.Writer
}

// New writes what policy says to out; log hears of what cannot be written.
func New(out io.Writer, policy *Policy, c clock.PassiveClock, log *zap.Logger) *Log {
	return &Log{policy: policy, clock: c, log: log, out: out}
}

// Caller is where a request comes from.
type Caller struct {
	URI, UserAgent string
	SourceIPs      []string
	// Actor is who impersonates the request's user; nil: nobody does.
	Actor *auth.User
	// ID is the client's name for the request; empty: it gets one.
	ID string
}

// Record is one request that is written down. Its methods do nothing when it is
// nil. It belongs to the request's goroutine.
type Record struct {
	log      *Log
	decision Decision
	event    event
	failed   metav1.Status
}

// Begin is the record of a request, nil where the policy wants none.
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

// ID is what the client can ask about.
func (r *Record) ID() string { return r.event.AuditID }

// Wants says whether a record of at least this level is kept.
func (r *Record) Wants(level Level) bool {
	return r != nil && (r.decision.Level == level || r.decision.Level == RequestResponse)
}

// Sent notes what the client sent, as JSON.
func (r *Record) Sent(data []byte) {
	if r.Wants(Request) && json.Valid(data) { // the handler refuses anything else
		r.event.RequestObject = r.object(data)
	}
}

// Answered notes what the client got, as JSON.
func (r *Record) Answered(data []byte) {
	if r.Wants(RequestResponse) {
		r.event.ResponseObject = r.object(data)
	}
}

// Decided notes whether the user might.
func (r *Record) Decided(allowed bool, reason string) {
	if r == nil {
		return
	}
	decision := "forbid"
	if allowed {
		decision = "allow"
	}
	r.event.Annotations = map[string]string{"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason}
}

// Started writes that the answer of a watch or a stream has begun.
func (r *Record) Started(code int) {
	if r == nil {
		return
	}
	r.event.ResponseStatus = &metav1.Status{Code: int32(code)}
	r.write(ResponseStarted)
}

// Failed notes the Status that the client got.
func (r *Record) Failed(status *metav1.Status) {
	if r != nil {
		r.failed = metav1.Status{Status: status.Status, Reason: status.Reason, Message: status.Message}
	}
}

// Ended writes that the request is over.
func (r *Record) Ended(code int) {
	if r == nil {
		return
	}
	r.failed.Code = int32(code)
	r.event.ResponseStatus = &r.failed
	r.write(ResponseComplete)
}

// Panicked writes that the server made a mistake.
func (r *Record) Panicked() {
	if r == nil {
		return
	}
	r.event.ResponseStatus = &metav1.Status{Code: 500, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError}
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
		r.log.log.Error("a request could not be written to the audit log", zap.String("auditID", r.event.AuditID), zap.Error(err))
	}
}

func (l *Log) append(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.out.Write(line)
	return err
}

// object is data as it is written down: without managedFields where the policy
// says so. It does not outlive the request otherwise, so it is copied.
func (r *Record) object(data []byte) json.RawMessage {
	if !r.decision.OmitManagedFields {
		return slices.Clone(data)
	}
	var obj any
	if json.Unmarshal(data, &obj) != nil {
		return nil
	}
	forget(obj)
	out, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	return out
}

// forget takes managedFields out of an object, or of the items of a list.
func forget(obj any) {
	fields, ok := obj.(map[string]any)
	if !ok {
		return
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	if items, ok := fields["items"].([]any); ok {
		for _, item := range items {
			forget(item)
		}
	}
}

type recordKey struct{}

// WithRecord puts the record of a request into its context.
func WithRecord(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

// Of is the record in the context; nil for none.
func Of(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}
