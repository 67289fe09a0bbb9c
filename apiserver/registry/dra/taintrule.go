package dra

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

type taintRule = resourcev1.DeviceTaintRule

func taintRules() kind.Resource {
	return kind.Resource{
		GVR: client.DeviceTaintRules, Kind: "DeviceTaintRule",
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(taintRule) },
		Prepare: kind.SpecAndStatus(
			func(obj kind.Object) (*resourcev1.DeviceTaintRuleSpec, *resourcev1.DeviceTaintRuleStatus) {
				return &obj.(*taintRule).Spec, &obj.(*taintRule).Status
			}, nil),
		Stamp:    stampRule,
		Validate: validateRule,
		Columns: []table.Column{
			table.Name(),
			table.Text("Key", "The key of the taint.", func(r *taintRule) string { return r.Spec.Taint.Key }),
			table.Text("Value", "The value of the taint.", func(r *taintRule) string { return r.Spec.Taint.Value }),
			table.Text("Effect", "The effect on pods that do not tolerate the taint.",
				func(r *taintRule) string { return string(r.Spec.Taint.Effect) }),
			table.Timed("TimeAdded", "Time since the taint was added.", func(r *taintRule, now time.Time) string {
				if added := r.Spec.Taint.TimeAdded; added != nil {
					return table.Since(added.Time, now)
				}
				return ""
			}),
			table.Age(),
		},
	}
}

// stampTaint sets the time of a taint.
func stampTaint(taint *resourcev1.DeviceTaint, now metav1.Time) {
	if taint.TimeAdded == nil {
		taint.TimeAdded = &now
	}
}

// stampRule sets the taint's timeAdded to the time of the last change of the effect, unless the client sets it.
func stampRule(next, cur kind.Object, now metav1.Time) {
	taint := &next.(*taintRule).Spec.Taint
	if cur != nil {
		old := &cur.(*taintRule).Spec.Taint
		if taint.Effect != old.Effect && taint.TimeAdded.Equal(old.TimeAdded) {
			taint.TimeAdded = nil
		}
	}
	stampTaint(taint, now)
}

func validateRule(next, _ kind.Object, subresource string) (errs field.ErrorList) {
	is := next.(*taintRule)
	if subresource == "status" {
		at := field.NewPath("status", "conditions")
		errs = append(errs, metavalidation.ValidateConditions(is.Status.Conditions, at)...)
		return append(errs, atMost(len(is.Status.Conditions), resourcev1.DeviceTaintRuleStatusMaxConditions, at)...)
	}
	at := field.NewPath("spec")
	if s := is.Spec.DeviceSelector; s != nil {
		at := at.Child("deviceSelector")
		if s.Driver != nil {
			errs = append(errs, driverName(*s.Driver, at.Child("driver"))...)
		}
		if s.Pool != nil {
			errs = append(errs, poolName(*s.Pool, at.Child("pool"))...)
		}
		if s.Device != nil {
			errs = append(errs, check.Named(at.Child("device"), *s.Device, validation.IsDNS1123Label)...)
		}
	}
	return append(errs, taintError(&is.Spec.Taint, at.Child("taint"))...)
}
