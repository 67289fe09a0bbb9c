package plugins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	helpers "k8s.io/component-helpers/resource"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// limitRangerAnnotation lists the defaults that LimitRanger has set.
const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// LimitRanger returns the plugin that sets default requests and limits of containers from the namespace's LimitRanges,
// and rejects pods and claims that violate them.
func LimitRanger(c client.Client) admission.Plugin {
	ranges := func(ctx context.Context, r *admission.Request) ([]*corev1.LimitRange, error) {
		return client.List[*corev1.LimitRange](ctx, c, client.Selector{Namespace: r.Namespace})
	}
	return admission.Plugin{
		Name: "LimitRanger",
		Mutate: func(ctx context.Context, r *admission.Request) error {
			pod, ok := r.Object.(*corev1.Pod)
			if !ok || r.Operation != admission.Create || r.Subresource != "" {
				return nil
			}
			all, err := ranges(ctx, r)
			for _, lr := range all {
				limitDefaults(pod, lr)
			}
			return err
		},
		Validate: func(ctx context.Context, r *admission.Request) error {
			if !limitsApply(r) {
				return nil
			}
			all, err := ranges(ctx, r)
			if err != nil {
				return err
			}
			for _, lr := range all {
				var errs []error
				for i := range lr.Spec.Limits {
					switch obj := r.Object.(type) {
					case *corev1.Pod:
						errs = append(errs, checkPod(obj, &lr.Spec.Limits[i])...)
					case *corev1.PersistentVolumeClaim:
						errs = append(errs, checkClaim(obj, &lr.Spec.Limits[i])...)
					}
				}
				if err := utilerrors.NewAggregate(errs); err != nil {
					return r.Forbid(err)
				}
			}
			return nil
		},
	}
}

// limitsApply reports whether LimitRanges apply to the request: creations and resizes of pods, and all writes of
// claims, except those of objects that are being deleted.
func limitsApply(r *admission.Request) bool {
	if r.Operation != admission.Create && r.Operation != admission.Update ||
		r.Old != nil && r.Old.GetDeletionTimestamp() != nil {
		return false
	}
	switch r.Object.(type) {
	case *corev1.Pod:
		if r.Subresource == "" {
			return r.Operation == admission.Create
		}
		return r.ChangesAmounts()
	case *corev1.PersistentVolumeClaim:
		return r.Subresource == ""
	}
	return false
}

// limitDefaults sets the defaults of the pod's containers and lists them in the annotation.
func limitDefaults(pod *corev1.Pod, lr *corev1.LimitRange) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range lr.Spec.Limits {
		if l := &lr.Spec.Limits[i]; l.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, l.DefaultRequest)
			maps.Copy(limits, l.Default)
		}
	}
	var notes []string
	for i := range pod.Spec.Containers {
		notes = append(notes, containerDefaults(&pod.Spec.Containers[i], requests, limits, "container")...)
	}
	for i := range pod.Spec.InitContainers {
		notes = append(notes, containerDefaults(&pod.Spec.InitContainers[i], requests, limits, "init container")...)
	}
	if len(notes) > 0 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, limitRangerAnnotation,
			"LimitRanger plugin set: "+strings.Join(notes, "; "))
	}
}

func containerDefaults(c *corev1.Container, requests, limits corev1.ResourceList, what string) []string {
	var notes []string
	if set := fillIn(&c.Resources.Requests, requests); set != "" {
		notes = append(notes, set+" request for "+what+" "+c.Name)
	}
	if set := fillIn(&c.Resources.Limits, limits); set != "" {
		notes = append(notes, set+" limit for "+what+" "+c.Name)
	}
	return notes
}

// fillIn adds the defaults of missing resources and returns their names.
func fillIn(amounts *corev1.ResourceList, defaults corev1.ResourceList) string {
	var set []string
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, said := (*amounts)[name]; said {
			continue
		}
		if *amounts == nil {
			*amounts = corev1.ResourceList{}
		}
		(*amounts)[name] = defaults[name].DeepCopy()
		set = append(set, string(name))
	}
	return strings.Join(set, ", ")
}

func checkPod(pod *corev1.Pod, l *corev1.LimitRangeItem) []error {
	var errs []error
	switch l.Type {
	case corev1.LimitTypeContainer:
		for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range list {
				errs = append(errs, checkAmounts(l, list[i].Resources.Requests, list[i].Resources.Limits)...)
			}
		}
	case corev1.LimitTypePod:
		opts := helpers.PodResourcesOptions{}
		errs = checkAmounts(l, helpers.PodRequests(pod, opts), helpers.PodLimits(pod, opts))
	}
	return errs
}

// checkAmounts returns the violations of min, max and maxLimitRequestRatio; nil errors are not violations.
func checkAmounts(l *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(l.Min)) {
		errs = append(errs, checkMin(l, name, requests, limits))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Max)) {
		errs = append(errs, checkMax(l, name, requests, limits))
	}
	for _, name := range slices.Sorted(maps.Keys(l.MaxLimitRequestRatio)) {
		errs = append(errs, checkRatio(l, name, requests, limits))
	}
	return errs
}

func checkMin(l *corev1.LimitRangeItem, name corev1.ResourceName, requests, limits corev1.ResourceList) error {
	least := l.Min[name]
	request, requested := requests[name]
	limit, limited := limits[name]
	rule := fmt.Sprintf("minimum %s usage per %s is %s", name, l.Type, least.String())
	switch {
	case !requested:
		return fmt.Errorf("%s.  No request is specified", rule)
	case request.Cmp(least) < 0:
		return fmt.Errorf("%s, but request is %s", rule, request.String())
	case limited && limit.Cmp(least) < 0:
		return fmt.Errorf("%s, but limit is %s", rule, limit.String())
	}
	return nil
}

func checkMax(l *corev1.LimitRangeItem, name corev1.ResourceName, requests, limits corev1.ResourceList) error {
	most := l.Max[name]
	request, requested := requests[name]
	limit, limited := limits[name]
	rule := fmt.Sprintf("maximum %s usage per %s is %s", name, l.Type, most.String())
	switch {
	case !limited:
		return fmt.Errorf("%s.  No limit is specified", rule)
	case limit.Cmp(most) > 0:
		return fmt.Errorf("%s, but limit is %s", rule, limit.String())
	case requested && request.Cmp(most) > 0:
		return fmt.Errorf("%s, but request is %s", rule, request.String())
	}
	return nil
}

func checkRatio(l *corev1.LimitRangeItem, name corev1.ResourceName, requests, limits corev1.ResourceList) error {
	most, request, limit := l.MaxLimitRequestRatio[name], requests[name], limits[name]
	rule := fmt.Sprintf("%s max limit to request ratio per %s is %s", name, l.Type, most.String())
	switch {
	case request.Sign() <= 0:
		return fmt.Errorf("%s, but no request is specified or request is 0", rule)
	case limit.Sign() <= 0:
		return fmt.Errorf("%s, but no limit is specified or limit is 0", rule)
	}
	if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > most.AsApproximateFloat64() {
		return fmt.Errorf("%s, but provided ratio is %f", rule, ratio)
	}
	return nil
}

// checkClaim returns the violations of a claim's request; claims have no limits.
func checkClaim(claim *corev1.PersistentVolumeClaim, l *corev1.LimitRangeItem) []error {
	if l.Type != corev1.LimitTypePersistentVolumeClaim {
		return nil
	}
	requests := claim.Spec.Resources.Requests
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(l.Min)) {
		errs = append(errs, checkMin(l, name, requests, nil))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Max)) {
		most := l.Max[name]
		request, requested := requests[name]
		rule := fmt.Sprintf("maximum %s usage per %s is %s", name, l.Type, most.String())
		switch {
		case !requested:
			errs = append(errs, fmt.Errorf("%s.  No request is specified", rule))
		case request.Cmp(most) > 0:
			errs = append(errs, fmt.Errorf("%s, but request is %s", rule, request.String()))
		}
	}
	return errs
}
