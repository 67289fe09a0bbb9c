package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/utils/ptr"
)

// longestTimeout is the maximum of timeoutSeconds.
const longestTimeout = 30

func validateHook(h *Hook, mutating, conditions bool, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, validation.IsFullyQualifiedName(path.Child("name"), h.Name)...)
	for i := range h.Rules {
		errs = append(errs, ValidateRule(&h.Rules[i], path.Child("rules").Index(i))...)
	}
	errs = append(errs, OneOf(h.FailurePolicy, path.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, OneOf(h.MatchPolicy, path.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)...)
	if h.SideEffects == nil {
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, OneOf(h.SideEffects, path.Child("sideEffects"), admissionv1.SideEffectClassNone,
		admissionv1.SideEffectClassNoneOnDryRun)...)
	if t := h.TimeoutSeconds; t != nil && (*t < 1 || *t > longestTimeout) {
		errs = append(errs,
			field.Invalid(path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	strict := metav1validation.LabelSelectorValidationOptions{}
	errs = append(errs,
		metav1validation.ValidateLabelSelector(h.NamespaceSelector, strict, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(h.ObjectSelector, strict, path.Child("objectSelector"))...)
	if mutating {
		errs = append(errs, OneOf(h.ReinvocationPolicy, path.Child("reinvocationPolicy"),
			admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	}
	errs = append(errs, validateClient(&h.ClientConfig, path.Child("clientConfig"))...)
	if conditions {
		errs = append(errs, ValidateConditions(h.MatchConditions, false, path.Child("matchConditions"))...)
	}
	return errs
}

// OneOf returns an error for a value that is set but not supported.
func OneOf[T ~string](value *T, path *field.Path, supported ...T) field.ErrorList {
	if value == nil || slices.Contains(supported, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, supported)}
}

func validateClient(c *admissionv1.WebhookClientConfig, path *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.URL != nil:
		return webhook.ValidateWebhookURL(path.Child("url"), *c.URL, true)
	}
	return webhook.ValidateWebhookService(path.Child("service"), c.Service.Namespace, c.Service.Name, c.Service.Path,
		ptr.Deref(c.Service.Port, 443))
}

// validateVersions requires a version of AdmissionReview that this server supports.
func validateVersions(versions []string, path *field.Path) (errs field.ErrorList) {
	known := []string{"v1", "v1beta1"}
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+strings.Join(known, ", "))}
	}
	accepted := false
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		for _, why := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, why))
		}
		accepted = accepted || slices.Contains(known, v)
	}
	if !accepted {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+strings.Join(known, ", ")))
	}
	return errs
}

// ValidateRule checks a rule.
func ValidateRule(r *admissionv1.RuleWithOperations, path *field.Path) (errs field.ErrorList) {
	operations := []admissionv1.OperationType{admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create,
		admissionv1.Delete, admissionv1.Update}
	errs = append(errs, wildcards(r.Operations, path.Child("operations"), "operations")...)
	for i, op := range r.Operations {
		errs = append(errs, OneOf(&op, path.Child("operations").Index(i), operations...)...)
	}
	errs = append(errs, wildcards(r.APIGroups, path.Child("apiGroups"), "API groups")...)
	errs = append(errs, wildcards(r.APIVersions, path.Child("apiVersions"), "API versions")...)
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(r.Resources, path.Child("resources"))...)
	return append(errs,
		OneOf(r.Scope, path.Child("scope"), admissionv1.AllScopes, admissionv1.ClusterScope, admissionv1.NamespacedScope)...)
}

// wildcards requires at least one value, and no other value beside "*".
func wildcards[T ~string](values []T, path *field.Path, what string) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(values) > 1 && slices.Contains(values, "*"):
		return field.ErrorList{field.Invalid(path, values, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

// validateResources rejects resources that an earlier wildcard covers.
func validateResources(resources []string, path *field.Path) (errs field.ErrorList) {
	if len(resources) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	ofResource, ofSub := map[string]bool{}, map[string]bool{} // seen as "resource/*" and "*/sub"
	var plain bool                                            // the last resource without a subresource is not "*"
	for i, r := range resources {
		if r == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		}
		name, sub, ok := strings.Cut(r, "/")
		if !ok {
			plain = r != "*"
			continue
		}
		if ofResource[name] {
			errs = append(errs,
				field.Invalid(path.Index(i), r, fmt.Sprintf("if '%s/*' is present, must not specify %s", name, r)))
		}
		if ofSub[sub] {
			errs = append(errs,
				field.Invalid(path.Index(i), r, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, r)))
		}
		ofResource[name] = ofResource[name] || sub == "*"
		ofSub[sub] = ofSub[sub] || name == "*"
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	if plain && slices.Contains(resources, "*") {
		errs = append(errs,
			field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}
