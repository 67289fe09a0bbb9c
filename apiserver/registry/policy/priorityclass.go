package policy

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Upstream's limits and names (pkg/apis/scheduling): user priorities are at most a billion, system priorities at least
// two billion.
const (
	highestUserPriority   = 1_000_000_000
	systemCriticalBase    = 2 * highestUserPriority
	SystemClusterCritical = "system-cluster-critical"
	SystemNodeCritical    = "system-node-critical"
)

func priorityClassResource() kind.Resource {
	return kind.Resource{
		GVR:        client.PriorityClasses,
		Kind:       "PriorityClass",
		ShortNames: []string{"pc"},
		New:        func() kind.Object { return new(schedulingv1.PriorityClass) },
		Default: func(obj kind.Object) {
			kind.SetIfNil(&obj.(*schedulingv1.PriorityClass).PreemptionPolicy, corev1.PreemptLowerPriority)
		},
		Prepare: func(next, cur kind.Object, _ string) {
			if cur == nil {
				next.SetGeneration(1)
			}
		},
		Validate: priorityClassValidate,
		Columns: []table.Column{
			table.Name(),
			table.Number("Value", "The priority of pods of this class.",
				func(p *schedulingv1.PriorityClass) int64 { return int64(p.Value) }),
			table.Text("Global-Default", "Whether this is the class of pods without a class.",
				func(p *schedulingv1.PriorityClass) string { return fmt.Sprint(p.GlobalDefault) }),
			table.Age(),
			table.Text("PreemptionPolicy", "Whether pods of this class preempt pods of lower priority.",
				func(p *schedulingv1.PriorityClass) string {
					return string(ptr.Deref(p.PreemptionPolicy, corev1.PreemptLowerPriority))
				}),
		},
	}
}

// SystemPriority returns the value of a system class; false for other names.
func SystemPriority(name string) (int32, bool) {
	switch name {
	case SystemClusterCritical:
		return systemCriticalBase, true
	case SystemNodeCritical:
		return systemCriticalBase + 1000, true
	}
	return 0, false
}

// priorityClassValidate reserves names with the prefix "system-" and values above highestUserPriority for the system
// classes.
func priorityClassValidate(next, cur kind.Object, _ string) field.ErrorList {
	class, path := next.(*schedulingv1.PriorityClass), field.NewPath("preemptionPolicy")
	var errs field.ErrorList
	if cur != nil {
		old := cur.(*schedulingv1.PriorityClass)
		if class.Value != old.Value {
			errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
		}
		return append(errs, check.Immutable(path, class.PreemptionPolicy, old.PreemptionPolicy)...)
	}
	if strings.HasPrefix(class.Name, "system-") {
		if value, ok := SystemPriority(class.Name); !ok || value != class.Value || class.GlobalDefault {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"names beginning with 'system-' are reserved for system use"))
		}
	} else if class.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestUserPriority)))
	}
	return append(errs, check.NilOr(path, class.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
}
