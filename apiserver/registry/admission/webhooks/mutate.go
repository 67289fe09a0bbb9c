package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/audit"
	"monopod/apiserver/patch"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/webhook"
)

// mutate implements admission.Plugin. It calls the webhooks one after the other.
func (h *Hooks) mutate(ctx context.Context, r *admission.Request) error {
	now := h.configured.Load()
	if now == nil || len(now.mutating) == 0 || r.PartOf != "" || match.Exempt(ctx, r) {
		return nil
	}
	s := match.ReinvocationOf(r, mutatingName)
	v := h.newDispatcher(r, true)
	for i, hook := range now.mutating {
		if err := v.mutate(ctx, hook, s, i); err != nil {
			return err
		}
	}
	s.End()
	return nil
}

// mutate calls a webhook that matches the request, and applies its patch.
func (v *dispatcher) mutate(ctx context.Context, h *hook, s *match.Reinvocation, index int) error {
	res, err := v.matchingVersion(ctx, h)
	if err != nil || res == nil {
		return err
	}
	place := fmt.Sprintf("round_0_index_%d", index)
	if v.R.Reinvocation {
		if s.Skips(h.id) {
			return nil
		}
		place = fmt.Sprintf("round_1_index_%d", index)
	}
	var answer *reviewv1.AdmissionResponse
	review, err := v.review(ctx, h, res)
	if err == nil {
		answer, err = v.post(ctx, h, review)
	}
	if err == nil {
		err = v.handleResponse(ctx, h, answer)
	}
	changed := false
	if err == nil {
		changed, err = v.apply(ctx, h, res, answer, place)
	}
	// Marshal cannot fail: strings and a bool.
	annotation, _ := json.Marshal(mutationAnnotationValue{h.configuration, h.Name, changed})
	audit.Of(ctx).Annotate(mutationAnnotation+place, string(annotation))
	if changed {
		s.Changed()
	}
	if p := h.ReinvocationPolicy; p != nil && *p == admissionv1.IfNeededReinvocationPolicy {
		s.Invoked(h.id)
	}
	return v.handleError(ctx, h, err, failedMutating+place)
}

// mutationAnnotationValue is the audit annotation about a call of a mutating webhook.
type mutationAnnotationValue struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Mutated       bool   `json:"mutated"`
}

// patchAnnotationValue is the audit annotation about a patch.
type patchAnnotationValue struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Patch         json.RawMessage `json:"patch"`
	PatchType     string          `json:"patchType"`
}

// apply applies the patch of a response to the request's object, and reports whether the object changed.
func (v *dispatcher) apply(ctx context.Context, h *hook, res *kind.Resource, answer *reviewv1.AdmissionResponse,
	place string) (bool, error) {
	if len(answer.Patch) == 0 {
		return false, nil
	}
	operations, err := jsonpatch.DecodePatch(answer.Patch)
	switch {
	case err != nil:
		return false, callError{h.Name, fmt.Errorf("received undecodable patch in webhook response: %w", err)}
	case len(operations) == 0:
		return false, nil
	case v.R.Object == nil || reflect.ValueOf(v.R.Object).IsNil():
		return false,
			apierrors.NewInternalError(
				fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation",
					h.Name))
	case *answer.PatchType != reviewv1.PatchTypeJSONPatch:
		return false, callError{h.Name, fmt.Errorf("unsupported patch type %q", webhook.Truncate(string(*answer.PatchType)))}
	}
	before, err := rawJSON(v.Form(res).Object)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	after, err := patch.Apply(types.JSONPatchType, before.Raw, answer.Patch, nil)
	if err != nil {
		// without the text of the API error, which is about a client's patch
		if _, why, ok := strings.Cut(err.Error(), "did not return more information: "); ok {
			err = errors.New(why)
		}
		return false, apierrors.NewInternalError(err)
	}
	if record := audit.Of(ctx); record.Wants(audit.Request) {
		annotation, _ := json.Marshal(patchAnnotationValue{h.configuration, h.Name, answer.Patch, "JSONPatch"}) // valid JSON
		record.Annotate(patchAnnotation+place, string(annotation))
	}
	if bytes.Equal(before.Raw, after) {
		return false, nil
	}
	return v.Replace(res, after, false)
}
