package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/audit"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
)

// Prefixes of the annotations in an audit event, which are upstream's.
const (
	mutationAnnotation = "mutation.webhook.admission.k8s.io/"
	patchAnnotation    = "patch.webhook.admission.k8s.io/"
	failedMutating     = "failed-open.mutation.webhook.admission.k8s.io/"
	failedValidating   = "failed-open.validating.webhook.admission.k8s.io/"
)

// callError is the error of a webhook that could not be called, or whose response is invalid.
type callError struct {
	name   string
	reason error
}

// Error implements error.
func (e callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.name, e.reason)
}

// Unwrap returns the reason.
func (e callError) Unwrap() error { return e.reason }

// post sends a review and returns the response, even if that denies the request, or a callError.
func (v *dispatcher) post(ctx context.Context, h *hook,
	review *reviewv1.AdmissionReview) (*reviewv1.AdmissionResponse, error) {
	if s := h.SideEffects; v.R.DryRun &&
		(s == nil || *s != admissionv1.SideEffectClassNone && *s != admissionv1.SideEffectClassNoneOnDryRun) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.Name))
	}
	if s := h.TimeoutSeconds; s != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*s)*time.Second)
		defer cancel()
	}
	answer := &reviewv1.AdmissionReview{}
	if err := h.client.Post(ctx, review, answer); err != nil {
		return nil, callError{h.Name, fmt.Errorf("failed to call webhook: %w", err)}
	}
	if err := verify(review, answer, v.Mutating); err != nil {
		return nil, callError{h.Name, fmt.Errorf("received invalid webhook response: %w", err)}
	}
	v.log.succeeded(h)
	return answer.Response, nil
}

// handleResponse records audit annotations and warnings. It returns an error if the webhook denies the request.
func (v *dispatcher) handleResponse(ctx context.Context, h *hook, r *reviewv1.AdmissionResponse) error {
	record := audit.Of(ctx)
	for key, value := range r.AuditAnnotations {
		record.Annotate(h.Name+"/"+key, value)
	}
	for _, text := range r.Warnings {
		v.R.Warn(text)
	}
	if !r.Allowed {
		return denial(h.Name, r.Result)
	}
	return nil
}

// handleError returns the error of the request for an error of a webhook: nil if the webhook fails open. annotation is
// the key of the audit annotation that then names the webhook.
func (v *dispatcher) handleError(ctx context.Context, h *hook, err error, annotation string) error {
	var call callError
	if !errors.As(err, &call) {
		return err
	}
	open := h.ignores() || match.FailsOpen(ctx, v.R)
	if !errors.Is(err, context.Canceled) { // the client has closed the connection
		outcome := "the request fails"
		if open {
			outcome = "the request continues without the webhook"
		}
		v.log.failed(h, call.reason, outcome)
	}
	switch {
	case !open:
		return apierrors.NewInternalError(call)
	case ctx.Err() != nil:
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	audit.Of(ctx).Annotate(annotation, h.Name)
	return nil
}

// validate implements admission.Plugin. It calls all webhooks at once, and returns the first error in their order.
func (h *Hooks) validate(ctx context.Context, r *admission.Request) error {
	now := h.configured.Load()
	if now == nil || len(now.validating) == 0 || r.PartOf != "" || match.Exempt(ctx, r) {
		return nil
	}
	v := h.newDispatcher(r, false)
	var calls []webhookCall // of the webhooks that match the request
	for _, hook := range now.validating {
		res, err := v.matchingVersion(ctx, hook)
		if err != nil {
			return err
		}
		if res == nil {
			continue
		}
		review, err := v.review(ctx, hook, res)
		if err != nil {
			return err
		}
		calls = append(calls, webhookCall{hook: hook, review: review})
	}
	if len(calls) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	v.postAll(ctx, calls)
	var first error
	for i := range calls {
		c := &calls[i]
		if c.err == nil {
			c.err = v.handleResponse(ctx, c.hook, c.answer)
		}
		if err := v.handleError(ctx, c.hook, c.err, fmt.Sprintf("%sround_0_index_%d", failedValidating, i)); err != nil &&
			first == nil {
			first = err
		}
	}
	return first
}

// webhookCall is one call of a webhook, with its result.
type webhookCall struct {
	hook   *hook
	review *reviewv1.AdmissionReview
	answer *reviewv1.AdmissionResponse
	err    error
}

func (v *dispatcher) postAll(ctx context.Context, calls []webhookCall) {
	if len(calls) == 1 {
		calls[0].answer, calls[0].err = v.post(ctx, calls[0].hook, calls[0].review)
		return
	}
	group, inner := guard.With(ctx)
	for i := range calls {
		c := &calls[i]
		c.err = callError{c.hook.Name, errors.New("the call panicked")}
		group.Do(func() error {
			c.answer, c.err = v.post(inner, c.hook, c.review)
			return nil
		})
	}
	_ = group.Wait() // the only error is a panic, which c.err already reports
}
