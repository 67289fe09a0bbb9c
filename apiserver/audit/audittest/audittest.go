// Package audittest reads what a request writes to the audit log, for tests.
package audittest

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/audit"
	"monopod/apiserver/auth"
)

// Annotations returns the annotations of the audit event that do writes with its context, at the level Request.
func Annotations(ctx context.Context, t *testing.T, do func(ctx context.Context)) map[string]string {
	t.Helper()
	policy, err := audit.ParsePolicy([]byte(`
{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: Request}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := audit.New(&out, policy, clock.RealClock{}, zap.NewNop())
	record := log.Begin(auth.Attributes{Verb: "create"}, audit.Caller{})
	do(audit.WithRecord(ctx, record))
	record.Ended(200)
	var event struct{ Annotations map[string]string }
	if err := json.Unmarshal(out.Bytes(), &event); err != nil {
		t.Fatalf("%s: %v", out.Bytes(), err)
	}
	return event.Annotations
}
