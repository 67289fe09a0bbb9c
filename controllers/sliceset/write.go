package sliceset

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/servicestate"
)

// Writer carries out plans.
type Writer struct {
	Client client.Client
	Index  *Index
	// Changed counts writes by operation (create, update, delete); may be nil.
	Changed func(operation string)
}

// recheck is the delay before a Service is reconciled again if the watch has not shown a write: the watch may have been
// interrupted, and the slice deleted meanwhile.
const recheck = 5 * time.Second

// Apply carries out the plan for the slices of a Service. at is the time of the change that caused it, or zero. A
// positive again is the delay before the Service must be reconciled again, for example because other clients have
// changed its slices meanwhile. After an error, the rest of the plan is not carried out; the next plan starts from the
// existing slices.
func (w Writer) Apply(ctx context.Context, service follow.Key, o Owner, p Plan,
	at time.Time) (again time.Duration, err error) {
	if len(p.Create)+len(p.Update)+len(p.Delete) > 0 {
		w.Index.beginWrites(service)
		err = w.write(ctx, service, o, p, at)
		if w.Index.endWrites(service) {
			return time.Nanosecond, err
		}
	}
	if len(w.Index.waiting(service)) > 0 {
		again = recheck
	}
	return again, err
}

// Existing returns the slices of a Service. It reads from the API the slices whose writes the watch has not shown.
func (w Writer) Existing(ctx context.Context, service follow.Key) ([]*discoveryv1.EndpointSlice, error) {
	for _, slice := range w.Index.waiting(service) {
		cur, err := client.Get[*discoveryv1.EndpointSlice](ctx, w.Client, slice.Namespace, slice.Name)
		switch {
		case apierrors.IsNotFound(err) || err == nil && cur.UID != slice.UID:
			w.Index.deleted(service, slice)
		case err != nil:
			return nil, err
		}
	}
	return w.Index.Of(service), nil
}

func (w Writer) write(ctx context.Context, service follow.Key, o Owner, p Plan, at time.Time) error {
	if o.Object.GetDeletionTimestamp() != nil {
		p.Create = nil // the garbage collector would delete them
	}
	for _, slice := range p.Create {
		slice.Annotations = servicestate.Stamp(slice.Annotations, at)
		stored, err := w.Client.Create(ctx, slice)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("failed to create EndpointSlice for %s %s/%s: %w", o.Kind.Kind, service.Namespace, service.Name,
				err)
		}
		w.Index.wrote(service, stored.(*discoveryv1.EndpointSlice))
		w.count("create")
	}
	for _, slice := range p.Update {
		slice.Annotations = servicestate.Stamp(slice.Annotations, at)
		stored, err := client.Update(ctx, w.Client, slice, "",
			func(cur *discoveryv1.EndpointSlice) error { return replace(cur, slice) })
		if apierrors.IsNotFound(err) {
			w.Index.deleted(service, slice)
		}
		if err != nil {
			return fmt.Errorf("failed to update %s EndpointSlice for %s %s/%s: %w", slice.Name, o.Kind.Kind, service.Namespace,
				service.Name, err)
		}
		w.Index.wrote(service, stored)
		w.count("update")
	}
	return w.Delete(ctx, service, p.Delete)
}

// replace writes the planned contents to cur, unless cur has changed since the plan.
func replace(cur, next *discoveryv1.EndpointSlice) error {
	if cur.UID != next.UID || cur.ResourceVersion != next.ResourceVersion {
		return apierrors.NewConflict(client.EndpointSlices.GroupResource(), next.Name,
			fmt.Errorf("resourceVersion is %s, not %s", cur.ResourceVersion, next.ResourceVersion))
	}
	cur.Labels, cur.Annotations, cur.Ports, cur.Endpoints = next.Labels, next.Annotations, next.Ports, next.Endpoints
	return nil
}

// Delete deletes slices of a Service.
func (w Writer) Delete(ctx context.Context, service follow.Key, all []*discoveryv1.EndpointSlice) error {
	for _, slice := range all {
		_, err := w.Client.Delete(ctx, client.RefOf(slice),
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(slice.UID))})
		switch {
		case err == nil:
			w.count("delete")
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			return fmt.Errorf("failed to delete %s EndpointSlice for %s/%s: %w", slice.Name, service.Namespace, service.Name,
				err)
		}
		w.Index.deleted(service, slice)
	}
	return nil
}

func (w Writer) count(operation string) {
	if w.Changed != nil {
		w.Changed(operation)
	}
}
