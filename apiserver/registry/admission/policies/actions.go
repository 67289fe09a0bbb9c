package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/audit"
)

// Upstream's limits (apiserver/pkg/admission/plugin/policy/validating).
const (
	maxFailures        = 50        // entries of the audit annotation
	maxAnnotationValue = 10 * 1024 // bytes of one audit annotation
)

// failureAnnotation is the audit annotation with the failures of bindings whose actions include Audit.
const failureAnnotation = "validation.policy.admission.k8s.io/validation_failure"

// failure is one entry of failureAnnotation.
type failure struct {
	Message           string                         `json:"message"`
	Policy            string                         `json:"policy"`
	Binding           string                         `json:"binding"`
	ExpressionIndex   int                            `json:"expressionIndex"`
	ValidationActions []admissionv1.ValidationAction `json:"validationActions"`
}

// outcome collects the results of all policies for a request.
type outcome struct {
	first    *denial // nil: allowed
	failures []failure
}

// denial is the reason why a policy denies a request.
type denial struct {
	source, message string
	reason          metav1.StatusReason
}

func (o *outcome) deny(d denial) {
	if o.first == nil {
		o.first = &d
	}
}

// misconfigured handles an error of a policy, or of its binding if b is not nil.
func (v *validation) misconfigured(p *policyMeta, b *binding, err error) {
	switch {
	case p.ignores():
	case b == nil:
		v.deny(denial{source: sourceOf(p, b), message: fmt.Sprintf("failed to configure policy: %v", err)})
	default:
		v.deny(denial{source: sourceOf(p, b), message: fmt.Sprintf("failed to configure binding: %v", err)})
	}
}

// sourceOf names a policy and its binding.
func sourceOf(p *policyMeta, b *binding) string {
	if b == nil {
		return fmt.Sprintf("%s '%s'", p.kind, p.name)
	}
	return fmt.Sprintf("%s '%s' with binding '%s'", p.kind, p.name, b.name)
}

// applyActions applies the binding's actions to a denied validation. index is the position of the validation in the
// policy.
func (v *validation) applyActions(p *policyMeta, b *binding, index int, d decision) {
	for _, action := range b.actions {
		switch action {
		case admissionv1.Deny:
			v.deny(denial{source: sourceOf(p, b), message: d.message, reason: d.reason})
		case admissionv1.Warn:
			v.R.Warn(fmt.Sprintf("Validation failed for %s: %s", sourceOf(p, b), d.message))
		case admissionv1.Audit:
			v.failures = append(v.failures, failure{d.message, p.name, b.name, index, b.actions})
		}
	}
}

// err returns the error of the request, in upstream's words. It records the failures in the audit event.
func (v *validation) err(ctx context.Context) error {
	if len(v.failures) > 0 {
		entries, err := json.Marshal(v.failures[:min(len(v.failures), maxFailures)])
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		audit.Of(ctx).Annotate(failureAnnotation, string(entries))
	}
	if v.first == nil {
		return nil
	}
	message := fmt.Sprintf("%s denied request: %s", v.first.source, v.first.message)
	err := v.R.Forbid(errors.New(message))
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	status.ErrStatus.Reason = v.first.reason
	if v.first.reason == "" {
		status.ErrStatus.Reason = metav1.StatusReasonInvalid
	}
	status.ErrStatus.Code = codeOf(status.ErrStatus.Reason)
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	return status
}

func codeOf(r metav1.StatusReason) int32 {
	switch r {
	case metav1.StatusReasonForbidden:
		return http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		return http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusUnprocessableEntity
}
