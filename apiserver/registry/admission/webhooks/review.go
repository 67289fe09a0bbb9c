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

	"monopod/apiserver/access/auth"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// ownUser is the user of the requests of this process's parts, for webhooks.
var ownUser = auth.User{Name: "system:kube-controller-manager", Groups: []string{auth.Authenticated}}

func (v *visit) user(ctx context.Context) auth.User {
	if u, ok := auth.Known(ctx); ok {
		return u
	}
	return ownUser
}

// name returns the object's name; empty while it is not yet generated.
func (v *visit) name() string {
	if o := v.r.Object; o != nil && v.mutating && v.whole() && v.r.Operation == admission.Create && generated(o) {
		return ""
	}
	return v.r.Name
}

// options returns the options of the request.
func (v *visit) options() runtime.Object {
	var dry []string
	if v.r.DryRun {
		dry = []string{metav1.DryRunAll}
	}
	group := metav1.GroupVersion{Group: metav1.GroupName, Version: "v1"}.String()
	switch v.r.Operation {
	case admission.Create:
		return &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{Kind: "CreateOptions", APIVersion: group}, DryRun: dry}
	case admission.Update:
		return &metav1.UpdateOptions{TypeMeta: metav1.TypeMeta{Kind: "UpdateOptions", APIVersion: group}, DryRun: dry}
	case admission.Delete:
		if o, ok := v.r.Options.(*metav1.DeleteOptions); ok {
			out := o.DeepCopy()
			out.Kind, out.APIVersion = "DeleteOptions", group
			return out
		}
	}
	return nil
}

// review returns the question for a webhook, in a version of the object.
func (v *visit) review(ctx context.Context, h *hook, res *kind.Resource) (*reviewv1.AdmissionReview, error) {
	f := v.in(res)
	object, err := v.raw(f.object)
	if err != nil {
		return nil, err
	}
	old, err := v.raw(f.old)
	if err != nil {
		return nil, err
	}
	options := v.options()
	u := v.user(ctx)
	who := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if who.Extra == nil {
			who.Extra = map[string]authenticationv1.ExtraValue{}
		}
		who.Extra[key] = values
	}
	requested := v.in(v.requested).kind
	return &reviewv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: versionFor(h)},
		Request: &reviewv1.AdmissionRequest{
			UID:  types.UID(uuid.NewString()),
			Kind: metav1.GroupVersionKind(f.kind), Resource: metav1.GroupVersionResource(res.GVR), SubResource: v.r.Subresource,
			RequestKind: new(metav1.GroupVersionKind(requested)), RequestResource: new(metav1.GroupVersionResource(v.requested.GVR)),
			RequestSubResource: v.r.Subresource, Name: v.name(), Namespace: v.namespace, Operation: reviewv1.Operation(v.r.Operation),
			UserInfo: who, Object: object, OldObject: old, DryRun: &v.r.DryRun, Options: runtime.RawExtension{Object: options},
		},
	}, nil
}

// versionFor returns the first version of AdmissionReview that the webhook and this server know; validation
// requires one. Both have the same fields.
func versionFor(h *hook) string {
	for _, version := range h.AdmissionReviewVersions {
		if version == "v1" || version == "v1beta1" {
			return reviewv1.GroupName + "/" + version
		}
	}
	return reviewv1.SchemeGroupVersion.String()
}

// verify returns why an answer is invalid, in upstream's words.
func verify(asked, answer *reviewv1.AdmissionReview, mutating bool) error {
	r := answer.Response
	if r == nil {
		return fmt.Errorf("webhook response was absent")
	}
	if asked.APIVersion != reviewv1.SchemeGroupVersion.String() { // v1beta1 had no rules
		if r.PatchType == nil && len(r.Patch) > 0 {
			r.PatchType = new(reviewv1.PatchTypeJSONPatch)
		}
		return nil
	}
	if r.UID != asked.Request.UID {
		return fmt.Errorf("expected response.uid=%q, got %q", asked.Request.UID, shortened(string(r.UID)))
	}
	if is, want := answer.GroupVersionKind(), asked.GroupVersionKind(); is != want {
		return fmt.Errorf("expected webhook response of %v, got %v", want, shortened(is.String()))
	}
	return verifyPatch(r, mutating)
}

func verifyPatch(r *reviewv1.AdmissionResponse, mutating bool) error {
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

// maxQuoted bounds what an error quotes of an answer.
const maxQuoted = 256

func shortened(text string) string { return text[:min(len(text), maxQuoted)] }

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

// maxCode is the highest code that an HTTP response may have.
const maxCode = 599
