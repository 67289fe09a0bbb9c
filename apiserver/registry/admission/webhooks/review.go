package webhooks

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	reviewv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/webhook"
)

// review returns the AdmissionReview for a webhook, with the object in a version, or an internal error.
func (v *dispatcher) review(ctx context.Context, h *hook, res *kind.Resource) (*reviewv1.AdmissionReview, error) {
	f := v.Form(res)
	if f.Err != nil {
		return nil, apierrors.NewInternalError(f.Err)
	}
	object, err := rawJSON(f.Object)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	old, err := rawJSON(f.Old)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	options := v.Options()
	u := v.User(ctx)
	who := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if who.Extra == nil {
			who.Extra = map[string]authenticationv1.ExtraValue{}
		}
		who.Extra[key] = values
	}
	requested := v.Form(v.Requested).Kind
	return &reviewv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: versionFor(h)},
		Request: &reviewv1.AdmissionRequest{
			UID:  types.UID(uuid.NewString()),
			Kind: metav1.GroupVersionKind(f.Kind), Resource: metav1.GroupVersionResource(res.GVR), SubResource: v.R.Subresource,
			RequestKind:     new(metav1.GroupVersionKind(requested)),
			RequestResource: new(metav1.GroupVersionResource(v.Requested.GVR)), RequestSubResource: v.R.Subresource,
			Name: v.Name(), Namespace: v.Namespace, Operation: reviewv1.Operation(v.R.Operation), UserInfo: who,
			Object: object, OldObject: old, DryRun: &v.R.DryRun, Options: runtime.RawExtension{Object: options},
		},
	}, nil
}

// versionFor returns the first version of AdmissionReview that both the webhook and this server support; validation
// requires one. The versions have the same fields.
func versionFor(h *hook) string {
	for _, version := range h.AdmissionReviewVersions {
		if version == "v1" || version == "v1beta1" {
			return reviewv1.GroupName + "/" + version
		}
	}
	return reviewv1.SchemeGroupVersion.String()
}

// verify returns an error, in upstream's words, if a response is invalid.
func verify(review, answer *reviewv1.AdmissionReview, mutating bool) error {
	r := answer.Response
	if r == nil {
		return fmt.Errorf("webhook response was absent")
	}
	if review.APIVersion != reviewv1.SchemeGroupVersion.String() { // v1beta1 does not require these fields
		if r.PatchType == nil && len(r.Patch) > 0 {
			r.PatchType = new(reviewv1.PatchTypeJSONPatch)
		}
		return nil
	}
	if r.UID != review.Request.UID {
		return fmt.Errorf("expected response.uid=%q, got %q", review.Request.UID, webhook.Truncate(string(r.UID)))
	}
	if is, want := answer.GroupVersionKind(), review.GroupVersionKind(); is != want {
		return fmt.Errorf("expected webhook response of %v, got %v", want, webhook.Truncate(is.String()))
	}
	switch {
	case !mutating && len(r.Patch) > 0:
		return fmt.Errorf("validating webhook may not return response.patch")
	case !mutating && r.PatchType != nil:
		return fmt.Errorf("validating webhook may not return response.patchType")
	case len(r.Patch) > 0 && r.PatchType == nil:
		return fmt.Errorf("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return fmt.Errorf("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType == "":
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *r.PatchType)
	}
	return nil
}

// denial returns the error of a request that the webhook denied.
func denial(name string, result *metav1.Status) error {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	if status.Code < http.StatusBadRequest || status.Code > maxCode {
		status.Code = http.StatusBadRequest
	}
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	by := fmt.Sprintf("admission webhook %q denied the request", name)
	switch {
	case status.Message != "":
		status.Message = by + ": " + status.Message
	case status.Reason != "":
		status.Message = by + ": " + string(status.Reason)
	default:
		status.Message = by + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// maxCode is the highest status code of an HTTP response.
const maxCode = 599
