// Package servicecidr maintains the ServiceCIDR of the configured ranges, protects ServiceCIDRs whose addresses are in
// use, and maintains an IPAddress for each cluster IP of a Service.
//
// The Services are the source of truth for allocations; the controller repairs IPAddresses that a client has changed.
package servicecidr

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
)

// The name and the source of Events are upstream's.
const (
	Name      = "service-cidr-controller"
	Component = Name
)

const (
	// Default is the name of the ServiceCIDR for the configured ranges (upstream's DefaultServiceCIDRName).
	Default = "kubernetes"
	// finalizer protects a ServiceCIDR while Services have addresses of it (upstream's).
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	// manager is the value of the label managed-by of the IPAddresses of Services (upstream's).
	manager = "ipallocator.k8s.io"
	// deletionGracePeriod is how long a deleted ServiceCIDR is kept, so that concurrent allocations finish (upstream's
	// deletionGracePeriod).
	deletionGracePeriod = 10 * time.Second
)

// Controller maintains ServiceCIDRs and IPAddresses.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	ranges []netip.Prefix
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller. Without ranges there is no default ServiceCIDR.
func New(deps follow.Deps, events record.Eventer, ranges []netip.Prefix) *Controller {
	return &Controller{deps: deps, events: events, ranges: ranges}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// item identifies a ServiceCIDR or a Service.
type item struct {
	cidr    string // empty: the item is the Service
	service follow.Key
}

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, index: newIndex()}
	cfg := follow.Config[item]{
		Name: Name,
		Sources: []follow.Source[item]{
			{Selector: client.Selector{Resource: client.ServiceCIDRs}, Keys: follow.Plain(r.index.onCIDR)},
			{Selector: client.Selector{Resource: client.Services}, Keys: follow.Plain(r.index.onService)},
			{Selector: client.Selector{Resource: client.IPAddresses}, Keys: follow.Plain(r.index.onAddress)},
		},
		Reconcile: r.reconcile,
	}
	if len(c.ranges) > 0 {
		cfg.Start = []item{{cidr: Default}}
	}
	return follow.New(c.deps, cfg).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	index *index
}

func (r *run) reconcile(ctx context.Context, key item) (time.Duration, error) {
	if key.cidr == "" {
		return 0, r.syncService(ctx, key.service)
	}
	cidr, err := client.Get[*networkingv1.ServiceCIDR](ctx, r.deps.Client, "", key.cidr)
	switch {
	case apierrors.IsNotFound(err) && key.cidr == Default && len(r.ranges) > 0:
		return 0, r.create(ctx)
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, err
	case cidr.DeletionTimestamp != nil:
		return r.finish(ctx, cidr)
	}
	return 0, r.open(ctx, cidr)
}

// create creates the ServiceCIDR of the configured ranges.
func (r *run) create(ctx context.Context) error {
	_, err := r.deps.Client.Create(ctx, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: Default, Finalizers: []string{finalizer}},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: texts(r.ranges)},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func texts(ranges []netip.Prefix) []string {
	var out []string
	for _, p := range ranges {
		out = append(out, p.String())
	}
	return out
}

// open adds the finalizer and the condition Ready, with which Services get addresses of the ServiceCIDR.
func (r *run) open(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	if cidr.Name == Default && len(r.ranges) > 0 && !slices.Equal(cidr.Spec.CIDRs, texts(r.ranges)) {
		r.events.Eventf(cidr, corev1.EventTypeWarning, "KubernetesDefaultServiceCIDRInconsistent",
			"The default ServiceCIDR %v does not match the flag --service-cluster-ip-range %v", cidr.Spec.CIDRs, texts(r.ranges))
	}
	if !slices.Contains(cidr.Finalizers, finalizer) {
		_, err := client.Update(ctx, r.deps.Client, cidr, "", func(next *networkingv1.ServiceCIDR) error {
			if next.DeletionTimestamp == nil && !slices.Contains(next.Finalizers, finalizer) {
				next.Finalizers = append(next.Finalizers, finalizer)
			}
			return nil
		})
		if err != nil {
			return ignoreGone(err)
		}
	}
	return r.ready(ctx, cidr, metav1.Condition{Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"})
}

func (r *run) ready(ctx context.Context, cidr *networkingv1.ServiceCIDR, is metav1.Condition) error {
	is.Type = networkingv1.ServiceCIDRConditionReady
	had := meta.FindStatusCondition(cidr.Status.Conditions, is.Type)
	if had != nil && had.Status == is.Status && had.Message == is.Message {
		return nil
	}
	is.LastTransitionTime = metav1.NewTime(r.deps.Clock.Now())
	_, err := client.Update(ctx, r.deps.Client, cidr, "status", func(next *networkingv1.ServiceCIDR) error {
		meta.SetStatusCondition(&next.Status.Conditions, is)
		return nil
	})
	return ignoreGone(err)
}

// finish removes the finalizer of a deleted ServiceCIDR when no Service needs it.
func (r *run) finish(ctx context.Context, cidr *networkingv1.ServiceCIDR) (time.Duration, error) {
	if !slices.Contains(cidr.Finalizers, finalizer) {
		return 0, nil
	}
	if r.index.needed(cidr.Name) {
		return 0, r.ready(ctx, cidr, metav1.Condition{
			Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
			Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
		})
	}
	if wait := deletionGracePeriod - r.deps.Clock.Since(cidr.DeletionTimestamp.Time); wait > 0 {
		return wait, nil
	}
	_, err := client.Update(ctx, r.deps.Client, cidr, "", func(next *networkingv1.ServiceCIDR) error {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
		return nil
	})
	return 0, ignoreGone(err)
}

// syncService creates the missing IPAddresses of a Service, and deletes surplus ones.
func (r *run) syncService(ctx context.Context, key follow.Key) error {
	lack, surplus := r.index.difference(key)
	for _, ip := range surplus {
		_, err := r.deps.Client.Delete(ctx, client.Ref{Resource: client.IPAddresses, Name: ip.name},
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ip.uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	for _, ip := range lack {
		family := corev1.IPv4Protocol
		if ip.Is6() {
			family = corev1.IPv6Protocol
		}
		_, err := r.deps.Client.Create(ctx, &networkingv1.IPAddress{
			ObjectMeta: metav1.ObjectMeta{Name: ip.String(), Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: string(family), networkingv1.LabelManagedBy: manager,
			}},
			Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
				Resource: "services", Namespace: key.Namespace, Name: key.Name}},
		})
		if err != nil && !apierrors.IsAlreadyExists(err) { // a change of the existing object wakes the Service
			return err
		}
	}
	return nil
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
