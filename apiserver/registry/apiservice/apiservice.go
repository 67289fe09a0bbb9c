// Package apiservice contains the kind APIService, which names the server of a group and version. Package aggregate
// forwards the requests.
package apiservice

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"monopod/apiserver/kit/check"
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
			errs, spec := validate(next, cur, subresource), &next.(*Service).Spec
			gv := schema.GroupVersion{Group: spec.Group, Version: spec.Version}
			if subresource == "" && spec.Service != nil && builtIn(gv) {
				errs = append(errs, field.Forbidden(field.NewPath("spec", "service"),
					fmt.Sprintf("%s is built in: no other server can serve it", gv)))
			}
			return errs
		},
		Subresources: kind.Parts("status"),
		Columns: []table.Column{
			table.Name(),
			table.Text("Service", "The reference to the service that hosts this API endpoint.", func(s *Service) string {
				if s.Spec.Service == nil {
					return "Local"
				}
				return s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
			}),
			table.Text("Available", "Whether this service is available.", availability),
			table.Age(),
		},
	}}
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
			is.Status.Conditions = []apiregistrationv1.APIServiceCondition{LocalCondition(is.CreationTimestamp)}
		}
	case subresource == "status":
		is.Spec = *was.Spec.DeepCopy()
		is.Labels, is.Annotations, is.Finalizers, is.OwnerReferences = was.Labels, was.Annotations, was.Finalizers,
			was.OwnerReferences
	case subresource == "":
		is.Status = *was.Status.DeepCopy()
		if is.Spec.Service == nil && !equality.Semantic.DeepEqual(is.Spec, was.Spec) {
			is.Status.Conditions = []apiregistrationv1.APIServiceCondition{LocalCondition(is.CreationTimestamp)}
		}
	}
}

// LocalCondition returns the condition Available of a group and version that this server serves.
func LocalCondition(now metav1.Time) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available,
		Status: apiregistrationv1.ConditionTrue, LastTransitionTime: now,
		Reason: "Local", Message: "Local APIServices are always available"}
}

func validate(next, _ kind.Object, subresource string) (errs field.ErrorList) {
	s := next.(*Service)
	if subresource == "status" {
		known := []apiregistrationv1.ConditionStatus{apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse,
			apiregistrationv1.ConditionUnknown}
		for i, c := range s.Status.Conditions {
			if !slices.Contains(known, c.Status) {
				errs = append(errs,
					field.NotSupported(field.NewPath("status", "conditions").Index(i).Child("status"), c.Status, known))
			}
		}
		return errs
	}
	at := field.NewPath("spec")
	if name := s.Spec.Version + "." + s.Spec.Group; s.Name != name {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name,
			fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", name)))
	}
	if s.Spec.Group == "" && s.Spec.Version != "v1" {
		errs = append(errs, field.Required(at.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	errs = slices.Concat(errs,
		check.UnsetOrNamed(at.Child("group"), s.Spec.Group, utilvalidation.IsDNS1123Subdomain),
		check.Invalid(at.Child("version"), s.Spec.Version, utilvalidation.IsDNS1035Label(s.Spec.Version)),
		between(at.Child("groupPriorityMinimum"), s.Spec.GroupPriorityMinimum, maxGroupPriority),
		between(at.Child("versionPriority"), s.Spec.VersionPriority, maxVersionPriority))
	service, insecure := s.Spec.Service, at.Child("insecureSkipTLSVerify")
	if service == nil {
		if n := len(s.Spec.CABundle); n != 0 {
			errs = append(errs, field.Invalid(at.Child("caBundle"), fmt.Sprintf("%d bytes", n),
				"local APIServices may not have a caBundle"))
		}
		if s.Spec.InsecureSkipTLSVerify {
			errs = append(errs, field.Invalid(insecure, true, "local APIServices may not have insecureSkipTLSVerify"))
		}
		return errs
	}
	errs = append(errs, check.Required(at.Child("service", "namespace"), service.Namespace)...)
	errs = append(errs, check.Required(at.Child("service", "name"), service.Name)...)
	if why := utilvalidation.IsValidPortNum(int(*service.Port)); why != nil {
		errs = append(errs,
			field.Invalid(at.Child("service", "port"), *service.Port, "port is not valid: "+strings.Join(why, ", ")))
	}
	if s.Spec.InsecureSkipTLSVerify && len(s.Spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(insecure, true, "may not be true if caBundle is present"))
	}
	return errs
}

func between(at *field.Path, value, most int32) field.ErrorList {
	if value <= 0 || value > most {
		return field.ErrorList{field.Invalid(at, value, fmt.Sprintf("must be positive and less than %d", most))}
	}
	return nil
}
