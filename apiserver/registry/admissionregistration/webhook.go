package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Hook is a webhook of either kind. A validating one has no reinvocationPolicy.
type Hook = admissionv1.MutatingWebhook

// webhookResources returns the kinds of webhook configurations.
func webhookResources() []kind.Resource {
	return []kind.Resource{
		resource(kind.Resource{
			GVR:  client.MutatingWebhookConfigurations,
			Kind: "MutatingWebhookConfiguration",
			New:  func() kind.Object { return new(admissionv1.MutatingWebhookConfiguration) },
		}),
		resource(kind.Resource{
			GVR:  client.ValidatingWebhookConfigurations,
			Kind: "ValidatingWebhookConfiguration",
			New:  func() kind.Object { return new(admissionv1.ValidatingWebhookConfiguration) },
		}),
	}
}

func resource(r kind.Resource) kind.Resource {
	r.Categories = []string{"api-extensions"}
	r.Default, r.Validate = setDefaults, validate
	r.Prepare = kind.SpecOnly(func(obj kind.Object) *[]Hook { return new(Of(obj)) }, setDefaults)
	r.Columns = []table.Column{
		table.Name(),
		table.Number("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration",
			func(obj kind.Object) int64 { return int64(len(Of(obj))) }),
		table.Age(),
	}
	return r
}

// Of returns the webhooks of a configuration. They share its fields; the caller must not modify them.
func Of(obj kind.Object) []Hook {
	switch c := obj.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		return c.Webhooks
	case *admissionv1.ValidatingWebhookConfiguration:
		out := make([]Hook, len(c.Webhooks))
		for i := range c.Webhooks {
			out[i] = fromValidating(&c.Webhooks[i])
		}
		return out
	}
	return nil
}

func fromValidating(w *admissionv1.ValidatingWebhook) Hook {
	return Hook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
		MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
		SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
	}
}

func toValidating(h *Hook) admissionv1.ValidatingWebhook {
	return admissionv1.ValidatingWebhook{
		Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy,
		MatchPolicy: h.MatchPolicy, NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector,
		SideEffects: h.SideEffects, TimeoutSeconds: h.TimeoutSeconds,
		AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: h.MatchConditions,
	}
}

// setDefaults sets upstream's defaults (pkg/apis/admissionregistration/v1/defaults.go).
func setDefaults(obj kind.Object) {
	switch c := obj.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			kind.SetIfNil(&c.Webhooks[i].ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			defaultHook(&c.Webhooks[i])
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			h := fromValidating(&c.Webhooks[i])
			defaultHook(&h)
			c.Webhooks[i] = toValidating(&h)
		}
	}
}

func defaultHook(h *Hook) {
	kind.SetIfNil(&h.FailurePolicy, admissionv1.Fail)
	kind.SetIfNil(&h.MatchPolicy, admissionv1.Equivalent)
	kind.SetIfNil(&h.NamespaceSelector, metav1.LabelSelector{})
	kind.SetIfNil(&h.ObjectSelector, metav1.LabelSelector{})
	kind.SetIfNil(&h.TimeoutSeconds, 10)
	if s := h.ClientConfig.Service; s != nil {
		kind.SetIfNil(&s.Port, 443)
	}
	for i := range h.Rules {
		kind.SetIfNil(&h.Rules[i].Scope, admissionv1.AllScopes)
	}
}

func validate(next, cur kind.Object, _ string) (errs field.ErrorList) {
	var was []Hook
	if cur != nil {
		was = Of(cur)
	}
	is := Of(next)
	conditions := len(is) != len(was) // an update compiles the conditions only if one changes
	for i := 0; i < len(is) && !conditions; i++ {
		conditions = !equality.Semantic.DeepEqual(is[i].MatchConditions, was[i].MatchConditions)
	}
	_, mutating := next.(*admissionv1.MutatingWebhookConfiguration)
	seen := map[string]bool{}
	for i := range is {
		path := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateHook(&is[i], mutating, conditions, path)...)
		errs = append(errs, validateVersions(is[i].AdmissionReviewVersions, path.Child("admissionReviewVersions"))...)
		if name := is[i].Name; name != "" && seen[name] {
			errs = append(errs, field.Duplicate(path.Child("name"), name))
		}
		seen[is[i].Name] = true
	}
	return errs
}
