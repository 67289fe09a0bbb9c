// Package audittest shows tests what a request leaves in the audit log.
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

// Annotations returns those of the audit event of a request, for which do gets the context. The level is Request.
func Annotations(ctx context.Context, t *testing.T, do func(ctx context.Context)) map[string]string {
	t.Helper()
	policy, err := audit.ParsePolicy(
		[]byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Request"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	record := audit.New(&out, policy, clock.RealClock{}, zap.NewNop()).Begin(auth.Attributes{Verb: "create"},
		audit.Caller{})
	do(audit.WithRecord(ctx, record))
	record.Ended(200)
	var event struct{ Annotations map[string]string }
	if err := json.Unmarshal(out.Bytes(), &event); err != nil {
		t.Fatalf("%s: %v", out.Bytes(), err)
	}
	return event.Annotations
}
