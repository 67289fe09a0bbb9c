package flow

import (
	"context"
	"fmt"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Ensure creates upstream's mandatory and suggested objects if they are missing. As upstream, it restores the mandatory
// objects, updates the suggested ones unless their annotation apf.kubernetes.io/autoupdate-spec is "false" (or is
// missing and the spec was changed), and deletes objects with "true" that this version no longer has.
func Ensure(ctx context.Context, c client.Client) error {
	group, ctx := guard.With(ctx) // concurrently, so that they share a commit
	names := map[string]bool{}
	ensure := func(want client.Object, mandatory bool) {
		names[keyOf(want)] = true
		group.Do(func() error {
			if err := restore(ctx, c, want, mandatory); err != nil {
				return fmt.Errorf("%T %s: %w", want, want.GetName(), err)
			}
			return nil
		})
	}
	for _, pl := range bootstrap.MandatoryPriorityLevelConfigurations {
		ensure(pl, true)
	}
	for _, fs := range bootstrap.MandatoryFlowSchemas {
		ensure(fs, true)
	}
	for _, pl := range bootstrap.SuggestedPriorityLevelConfigurations {
		ensure(pl, false)
	}
	for _, fs := range bootstrap.SuggestedFlowSchemas {
		ensure(fs, false)
	}
	group.Do(func() error { return deleteObsolete(ctx, c, names) })
	return group.Wait()
}

func keyOf(obj client.Object) string { return fmt.Sprintf("%T %s", obj, obj.GetName()) }

func restore(ctx context.Context, c client.Client, want client.Object, mandatory bool) error {
	ref := client.RefOf(want)
	have, err := c.Get(ctx, ref)
	if apierrors.IsNotFound(err) {
		if _, err = c.Create(ctx, want.DeepCopyObject().(client.Object)); apierrors.IsAlreadyExists(err) {
			return nil // another server on the same state created it first
		}
		return err
	}
	if err != nil || upToDate(have, want, mandatory) {
		return err
	}
	_, err = c.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
		if upToDate(cur, want, mandatory) {
			return cur, nil
		}
		next := cur.DeepCopyObject().(client.Object)
		updates := mandatory || updatable(cur)
		annotations := next.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(updates)
		next.SetAnnotations(annotations)
		if updates {
			setSpec(next, want)
		}
		return next, nil
	})
	return err
}

// upToDate reports whether an object has the spec, if it may be updated, and the annotation that says so.
func upToDate(have, want client.Object, mandatory bool) bool {
	updates := mandatory || updatable(have)
	value, err := strconv.ParseBool(have.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	return err == nil && value == updates && (!updates || sameSpec(have, want))
}

// updatable returns the annotation's value. An object without the annotation may be updated unless a user has changed
// it.
func updatable(obj client.Object) bool {
	if value, err := strconv.ParseBool(obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]); err == nil {
		return value
	}
	return obj.GetGeneration() == 1
}

func sameSpec(have, want client.Object) bool {
	if pl, ok := have.(*flowcontrolv1.PriorityLevelConfiguration); ok {
		next := pl.DeepCopy()
		setSpec(next, want)
		return equality.Semantic.DeepEqual(next.Spec, pl.Spec)
	}
	return equality.Semantic.DeepEqual(have.(*flowcontrolv1.FlowSchema).Spec, want.(*flowcontrolv1.FlowSchema).Spec)
}

// setSpec sets the spec of want, except for the seats of the level exempt, which users may set.
func setSpec(next, want client.Object) {
	switch next := next.(type) {
	case *flowcontrolv1.FlowSchema:
		next.Spec = *want.(*flowcontrolv1.FlowSchema).Spec.DeepCopy()
	case *flowcontrolv1.PriorityLevelConfiguration:
		seats := next.Spec.Exempt
		next.Spec = *want.(*flowcontrolv1.PriorityLevelConfiguration).Spec.DeepCopy()
		if next.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt && seats != nil {
			next.Spec.Exempt = seats
		}
	}
}

// deleteObsolete deletes the objects that an earlier version created, unless a user has changed them.
func deleteObsolete(ctx context.Context, c client.Client, names map[string]bool) error {
	for _, resource := range []client.Selector{{Resource: client.FlowSchemas},
		{Resource: client.PriorityLevelConfigurations}} {
		objs, _, err := c.List(ctx, resource)
		if err != nil {
			return err
		}
		for _, obj := range objs {
			old, err := strconv.ParseBool(obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
			if names[keyOf(obj)] || err != nil || !old {
				continue
			}
			uid := obj.GetUID()
			if _, err := c.Delete(ctx, client.RefOf(obj),
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}
