package webhooks_test

import (
	"context"
	"maps"
	"testing"

	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"monopod/apiserver/audit/audittest"
)

// The audit event of a request has the annotations of webhooks, the mutations of each round, and the ignored failures.
func TestAudit(t *testing.T) {
	t.Parallel()
	k := open(t, nil)
	annotated := func(r *reviewv1.AdmissionResponse) *reviewv1.AdmissionResponse {
		r.AuditAnnotations = map[string]string{"seen": "yes"}
		return r
	}
	configMaps := on("", "v1", "configmaps")
	first := hook("first.example.com",
		serve(t, reviewing(t, func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse { return annotated(allow(r)) })),
		configMaps)
	first.ReinvocationPolicy = new(admissionv1.IfNeededReinvocationPolicy)
	second := hook("second.example.com",
		serve(t, reviewing(t, func(*reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
			return patch(`[{"op":"add","path":"/data/x","value":"y"}]`)
		})), configMaps)
	down := hook("down.example.com", admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}, configMaps)
	down.FailurePolicy = new(admissionv1.Ignore)
	k.mutating("m", first, second, down)
	k.validating("v",
		hook("v.example.com",
			serve(t, reviewing(t,
				func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse { return annotated(allow(r)) })), configMaps), down)
	got := audittest.Annotations(k.ctx, t,
		func(ctx context.Context) { k.create(ctx, config("x", map[string]string{"a": "b"})) })
	const mutation, patched, failed = "mutation.webhook.admission.k8s.io/", "patch.webhook.admission.k8s.io/",
		"failed-open.mutation.webhook.admission.k8s.io/"
	want := map[string]string{
		"first.example.com/seen": "yes", "v.example.com/seen": "yes",
		mutation + "round_0_index_0":                                      `{"configuration":"m","webhook":"first.example.com","mutated":false}`,
		mutation + "round_0_index_1":                                      `{"configuration":"m","webhook":"second.example.com","mutated":true}`,
		mutation + "round_0_index_2":                                      `{"configuration":"m","webhook":"down.example.com","mutated":false}`,
		mutation + "round_1_index_0":                                      `{"configuration":"m","webhook":"first.example.com","mutated":false}`,
		patched + "round_0_index_1":                                       `{"configuration":"m","webhook":"second.example.com","patch":[{"op":"add","path":"/data/x","value":"y"}],"patchType":"JSONPatch"}`,
		failed + "round_0_index_2":                                        "down.example.com",
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "down.example.com",
	}
	if !maps.Equal(got, want) {
		for key := range maps.Keys(got) {
			if want[key] != got[key] {
				t.Errorf("%s: %s, want %s", key, got[key], want[key])
			}
		}
		t.Errorf("annotations %v", got)
	}
}
