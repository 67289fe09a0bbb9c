// Package apiservice contains the kind APIService, which names the server of a group and version. Package aggregate
// forwards the requests.
package apiservice

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Service is an APIService.
type Service = apiregistrationv1.APIService

// Maximum priorities.
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

// Resources returns the kind APIService. builtIn reports whether this server serves a group and version itself, so that
// no other server can.
func Resources(builtIn func(schema.GroupVersion) bool) []kind.Resource {
	return []kind.Resource{{
		GVR:        client.APIServices,
		Kind:       "APIService",
		Categories: []string{"api-extensions"},
		New:        func() kind.Object { return new(Service) },
		ValidName:  func(name string, _ bool) []string { return content.IsPathSegmentName(name) },
		Default: func(obj kind.Object) {
			if service := obj.(*Service).Spec.Service; service != nil {
				kind.SetIfNil(&service.Port, 443)
			}
		},
		Prepare: prepare,
		Validate: func(next, cur kind.Object, subresource string) field.ErrorList {
			return append(validate(next, cur, subresource), validateBuiltIn(next.(*Service), subresource, builtIn)...)
		},
		Subresources: kind.Parts("status"),
		Columns: []table.Column{
			table.Name(),
			table.Text("Service", "The reference to the service that hosts this API endpoint.", hostOf),
			table.Text("Available", "Whether this service is available.", availability),
			table.Age(),
		},
	}}
}

func hostOf(s *Service) string {
	if s.Spec.Service == nil {
		return "Local"
	}
	return s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
}

// availability returns the condition Available as kubectl shows it.
func availability(s *Service) string {
	c := Available(s)
	switch {
	case c == nil:
		return string(apiregistrationv1.ConditionUnknown)
	case c.Status != apiregistrationv1.ConditionTrue && c.Reason != "":
		return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
	}
	return string(c.Status)
}

// Available returns the condition Available; nil: there is none.
func Available(s *Service) *apiregistrationv1.APIServiceCondition {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return nil
}

func prepare(next, cur kind.Object, subresource string) {
	is, was := next.(*Service), (*Service)(nil)
	if cur != nil {
		was = cur.(*Service)
	}
	switch {
	case was == nil:
		is.Status = apiregistrationv1.APIServiceStatus{}
		if is.Spec.Service == nil { // upstream: local services are always available
			is.Status.Conditions = []apiregistrationv1.APIServiceCondition{Local(is.CreationTimestamp)}
		}
	case subresource == "status":
		is.Spec = *was.Spec.DeepCopy()
		is.Labels, is.Annotations, is.Finalizers, is.OwnerReferences = was.Labels, was.Annotations, was.Finalizers,
			was.OwnerReferences
	case subresource == "":
		is.Status = *was.Status.DeepCopy()
		if is.Spec.Service == nil && !equality.Semantic.DeepEqual(is.Spec, was.Spec) {
			is.Status.Conditions = []apiregistrationv1.APIServiceCondition{Local(is.CreationTimestamp)}
		}
	}
}

// Local returns the condition Available of a group and version that this server serves.
func Local(now metav1.Time) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available,
		Status: apiregistrationv1.ConditionTrue, LastTransitionTime: now,
		Reason: "Local", Message: "Local APIServices are always available"}
}

// validateBuiltIn rejects another server for a group and version that this server serves.
func validateBuiltIn(s *Service, subresource string, builtIn func(schema.GroupVersion) bool) field.ErrorList {
	gv := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
	if subresource != "" || s.Spec.Service == nil || !builtIn(gv) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "service"),
		fmt.Sprintf("%s is built in: no other server can serve it", gv))}
}

func validate(next, _ kind.Object, subresource string) (errs field.ErrorList) {
	s := next.(*Service)
	if subresource == "status" {
		return validateStatus(s)
	}
	at := field.NewPath("spec")
	if name := s.Spec.Version + "." + s.Spec.Group; s.Name != name {
		errs = append(errs,
			field.Invalid(field.NewPath("metadata", "name"), s.Name,
				fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", name)))
	}
	if s.Spec.Group == "" && s.Spec.Version != "v1" {
		errs = append(errs, field.Required(at.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	if s.Spec.Group != "" {
		for _, why := range utilvalidation.IsDNS1123Subdomain(s.Spec.Group) {
			errs = append(errs, field.Invalid(at.Child("group"), s.Spec.Group, why))
		}
	}
	for _, why := range utilvalidation.IsDNS1035Label(s.Spec.Version) {
		errs = append(errs, field.Invalid(at.Child("version"), s.Spec.Version, why))
	}
	errs = append(errs, between(at.Child("groupPriorityMinimum"), s.Spec.GroupPriorityMinimum, maxGroupPriority)...)
	errs = append(errs, between(at.Child("versionPriority"), s.Spec.VersionPriority, maxVersionPriority)...)
	if s.Spec.Service == nil {
		return append(errs, validateLocal(&s.Spec, at)...)
	}
	return append(errs, validateRemote(&s.Spec, at)...)
}

func between(at *field.Path, value, most int32) field.ErrorList {
	if value <= 0 || value > most {
		return field.ErrorList{field.Invalid(at, value, fmt.Sprintf("must be positive and less than %d", most))}
	}
	return nil
}

func validateLocal(s *apiregistrationv1.APIServiceSpec, at *field.Path) (errs field.ErrorList) {
	if len(s.CABundle) != 0 {
		errs = append(errs,
			field.Invalid(at.Child("caBundle"), fmt.Sprintf("%d bytes", len(s.CABundle)),
				"local APIServices may not have a caBundle"))
	}
	if s.InsecureSkipTLSVerify {
		errs = append(errs,
			field.Invalid(at.Child("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

func validateRemote(s *apiregistrationv1.APIServiceSpec, at *field.Path) (errs field.ErrorList) {
	service := at.Child("service")
	if s.Service.Namespace == "" {
		errs = append(errs, field.Required(service.Child("namespace"), ""))
	}
	if s.Service.Name == "" {
		errs = append(errs, field.Required(service.Child("name"), ""))
	}
	if why := utilvalidation.IsValidPortNum(int(*s.Service.Port)); why != nil {
		errs = append(errs,
			field.Invalid(service.Child("port"), *s.Service.Port, "port is not valid: "+strings.Join(why, ", ")))
	}
	if s.InsecureSkipTLSVerify && len(s.CABundle) > 0 {
		errs = append(errs, field.Invalid(at.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateStatus(s *Service) (errs field.ErrorList) {
	known := []apiregistrationv1.ConditionStatus{apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse,
		apiregistrationv1.ConditionUnknown}
	for i, c := range s.Status.Conditions {
		switch c.Status {
		case apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown:
		default:
			errs = append(errs,
				field.NotSupported(field.NewPath("status", "conditions").Index(i).Child("status"), c.Status, known))
		}
	}
	return errs
}
