package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/quota"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// quotas charges writes to the quotas of their namespace. The usage is the sum over stored and pending objects, so that
// the plugin need not write it.
type quotas struct {
	api     client.Client
	clock   clock.PassiveClock
	pending pendingWrites
}

// ResourceQuota returns the plugin that rejects writes that exceed a quota. It must be the last plugin, because the
// objects that it admits count at once.
func ResourceQuota(c client.Client) admission.Plugin {
	q := &quotas{api: c, clock: clock.RealClock{}}
	return admission.Plugin{Name: "ResourceQuota", Validate: q.validate}
}

func (q *quotas) validate(ctx context.Context, r *admission.Request) error {
	if !isCharged(r) {
		return nil
	}
	all, err := client.List[*corev1.ResourceQuota](ctx, q.api, client.Selector{Namespace: r.Namespace})
	if err != nil {
		return err
	}
	demands, err := demandsOf(r, all, q.clock.Now())
	if err != nil || len(demands) == 0 {
		return err
	}

	// Admit the demands if the quotas allow them, and count the object until its write ends.
	began := q.pending.begin()
	defer q.pending.end(began)
	stored, _, err := q.api.List(ctx, client.Selector{Resource: r.Resource.GVR, Namespace: r.Namespace})
	if err != nil {
		return err
	}
	for _, d := range demands {
		d.used = quota.Sum(&d.quota.Spec, d.resource, stored, d.requested, d.now)
	}
	var h *pendingWrite
	if !r.DryRun {
		h = &pendingWrite{resource: r.Resource.GVR.GroupResource(), object: r.Object}
	}
	err = q.pending.admit(began, h, func(pending []*pendingWrite) error { return allow(r, demands, stored, pending) })
	if err == nil && h != nil && !admission.OnEnd(ctx, func() { q.pending.release(h) }) {
		q.pending.release(h) // without During, nothing ends the write
	}
	return err
}

// isCharged reports whether the request can increase the usage of a quota: a creation, or an update of a pod, a Service
// or a claim.
func isCharged(r *admission.Request) bool {
	if !r.Resource.Namespaced || !quota.Applies(r.Resource.GVR.GroupResource()) || r.Object == nil {
		return false
	}
	if r.Operation == admission.Create {
		return r.Subresource == ""
	}
	switch r.Object.(type) {
	case *corev1.Pod:
		return r.Operation == admission.Update && r.ChangesAmounts()
	case *corev1.Service, *corev1.PersistentVolumeClaim:
		return r.Operation == admission.Update && r.Subresource == ""
	}
	return false
}

// demand is the additional usage that a request needs from one quota.
type demand struct {
	quota     *corev1.ResourceQuota
	requested corev1.ResourceList // all above zero
	used      corev1.ResourceList // current usage of the requested resources
	resource  schema.GroupResource
	now       time.Time
}

// demandsOf returns the demands of the request, one for each quota that applies.
func demandsOf(r *admission.Request, all []*corev1.ResourceQuota, now time.Time) ([]*demand, error) {
	gr := r.Resource.GVR.GroupResource()
	var demands []*demand
	for _, rq := range all {
		hard := corev1.ResourceList{}
		for name, amount := range rq.Spec.Hard {
			if quota.Names(gr, name) {
				hard[name] = amount
			}
		}
		if len(hard) == 0 || !quota.Matches(&rq.Spec, r.Object) {
			continue
		}
		if pod, ok := r.Object.(*corev1.Pod); ok && r.Operation == admission.Create {
			if err := quota.Must(hard, pod); err != nil {
				return nil, r.Forbid(fmt.Errorf("failed quota: %s: %w", rq.Name, err))
			}
		}
		requested := quota.Of(gr, r.Object, hard, now)
		d := &demand{quota: rq, resource: gr, now: now}
		if requested = quota.Exceeded(requested, d.use(r.Old, hard)); len(requested) > 0 {
			d.requested = requested
			demands = append(demands, d)
		}
	}
	return demands, nil
}

// use returns the amounts of the resources in mask that obj, which may be nil, uses of the quota.
func (d *demand) use(obj kind.Object, mask corev1.ResourceList) corev1.ResourceList {
	if obj == nil || !quota.Matches(&d.quota.Spec, obj) {
		return nil
	}
	return quota.Of(d.resource, obj, mask, d.now)
}

// allow adds pending writes to the usage, and returns an error if a quota is exceeded.
func allow(r *admission.Request, demands []*demand, stored []kind.Object, pending []*pendingWrite) error {
	for _, h := range pending {
		if h.resource != r.Resource.GVR.GroupResource() || h.object.GetNamespace() != r.Namespace ||
			h.object.GetUID() == r.Object.GetUID() {
			continue
		}
		now := storedVersion(stored, h.object)
		for _, d := range demands {
			quota.Add(d.used, quota.Exceeded(d.use(h.object, d.requested), d.use(now, d.requested)))
		}
	}
	for _, d := range demands {
		if err := d.exceeded(); err != nil {
			return r.Forbid(err)
		}
	}
	return nil
}

// storedVersion returns the stored version of obj from a list sorted by name; nil: none.
func storedVersion(stored []kind.Object, obj kind.Object) kind.Object {
	i, found := slices.BinarySearchFunc(stored, obj.GetName(), func(o kind.Object, name string) int {
		return strings.Compare(o.GetName(), name)
	})
	if !found || stored[i].GetUID() != obj.GetUID() {
		return nil
	}
	return stored[i]
}

// exceeded returns the error with the exceeded amounts.
func (d *demand) exceeded() error {
	var over []corev1.ResourceName
	for name, amount := range d.requested {
		total := d.used[name].DeepCopy()
		total.Add(amount)
		if total.Cmp(d.quota.Spec.Hard[name]) > 0 {
			over = append(over, name)
		}
	}
	if len(over) == 0 {
		return nil
	}
	slices.Sort(over)
	return errors.New("exceeded quota: " + d.quota.Name + ", requested: " + amountsText(d.requested, over) +
		", used: " + amountsText(d.used, over) + ", limited: " + amountsText(d.quota.Spec.Hard, over))
}

// amountsText formats amounts as "cpu=1,memory=1Gi".
func amountsText(amounts corev1.ResourceList, names []corev1.ResourceName) string {
	parts := make([]string, len(names))
	for i, name := range names {
		amount := amounts[name]
		parts[i] = string(name) + "=" + amount.String()
	}
	return strings.Join(parts, ",")
}
