package owned

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
)

// Adopter adopts and releases objects of type T for an owner according to its selector.
type Adopter[T client.Object] struct {
	Client   client.Client
	Kind     schema.GroupVersionKind // of the owners
	Adoptive func(obj T) bool        // whether an orphan may be adopted
	// Finalizer is added to adopted objects and removed from released ones; empty: none.
	Finalizer string
}

// Verdict is the result of Judge.
type Verdict int

// The relations of an object to an owner.
const (
	Ignore  Verdict = iota
	Keep            // owned and selected
	Release         // owned, no longer selected
	Adopt           // selected, without an owner
)

// Judge returns the relation of obj to owner. An owner that is being deleted neither adopts nor releases.
func (a Adopter[T]) Judge(owner client.Object, selector labels.Selector, obj T) Verdict {
	selected := selector.Matches(labels.Set(obj.GetLabels()))
	controller := metav1.GetControllerOfNoCopy(obj)
	switch {
	case controller != nil && controller.UID != owner.GetUID():
		return Ignore
	case controller != nil && selected:
		return Keep
	case controller != nil && owner.GetDeletionTimestamp() == nil:
		return Release
	case controller == nil && selected && owner.GetDeletionTimestamp() == nil && a.Adoptive(obj):
		return Adopt
	}
	return Ignore
}

// Of adopts and releases objects where necessary, and returns those of objs that owner then controls. Objects that
// could not be adopted are omitted, and the error describes why.
func (a Adopter[T]) Of(ctx context.Context, owner client.Object, selector labels.Selector, objs []T) ([]T, error) {
	var mine []T
	var errs []error
	var mayAdopt func() error
	for _, obj := range objs {
		var err error
		switch a.Judge(owner, selector, obj) {
		case Keep:
			mine = append(mine, obj)
		case Release:
			err = a.release(ctx, owner, obj)
		case Adopt:
			if mayAdopt == nil {
				mayAdopt = a.recheck(ctx, owner)
			}
			var adopted T
			var ok bool
			if adopted, ok, err = a.adopt(ctx, owner, obj, mayAdopt); ok {
				mine = append(mine, adopted)
			}
		}
		errs = append(errs, err)
	}
	return mine, errors.Join(errs...)
}

// recheck returns a function that reads owner from the API once. It fails if owner was replaced or is being deleted.
func (a Adopter[T]) recheck(ctx context.Context, owner client.Object) func() error {
	fresh, err := a.Client.Get(ctx, client.RefOf(owner))
	switch {
	case err != nil:
	case fresh.GetUID() != owner.GetUID():
		err = fmt.Errorf("%s %s/%s was replaced: uid %s, was %s", a.Kind.Kind, owner.GetNamespace(), owner.GetName(),
			fresh.GetUID(), owner.GetUID())
	case fresh.GetDeletionTimestamp() != nil:
		err = fmt.Errorf("%s %s/%s is being deleted", a.Kind.Kind, owner.GetNamespace(), owner.GetName())
	}
	return func() error { return err }
}

// errNotOrphan stops an adoption after another controller has adopted the object.
var errNotOrphan = errors.New("object is no longer an orphan")

// adopt makes owner the controller of obj; it returns false if obj is gone or has another controller.
func (a Adopter[T]) adopt(ctx context.Context, owner client.Object, obj T,
	may func() error) (adopted T, ok bool, err error) {
	if err := may(); err != nil {
		return adopted, false, fmt.Errorf("cannot adopt %s: %w", obj.GetName(), err)
	}
	adopted, err = client.Update(ctx, a.Client, obj, "", func(o T) error {
		if metav1.IsControlledBy(o, owner) {
			return nil // this owner has adopted it, but the index does not contain that yet
		}
		if o.GetUID() != obj.GetUID() || o.GetDeletionTimestamp() != nil || metav1.GetControllerOfNoCopy(o) != nil {
			return errNotOrphan
		}
		o.SetOwnerReferences(append(o.GetOwnerReferences(), a.Ref(owner)))
		if a.Finalizer != "" && !slices.Contains(o.GetFinalizers(), a.Finalizer) {
			o.SetFinalizers(append(o.GetFinalizers(), a.Finalizer))
		}
		return nil
	})
	if errors.Is(err, errNotOrphan) || apierrors.IsNotFound(err) {
		return adopted, false, nil
	}
	return adopted, err == nil, err
}

// release removes owner from the owners of obj.
func (a Adopter[T]) release(ctx context.Context, owner client.Object, obj T) error {
	_, err := client.Update(ctx, a.Client, obj, "", func(o T) error {
		o.SetOwnerReferences(
			slices.DeleteFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() }))
		if a.Finalizer != "" {
			o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == a.Finalizer }))
		}
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil // deleted, or without owners already
	}
	return err
}

// Ref returns the owner reference for objects that owner controls.
func (a Adopter[T]) Ref(owner client.Object) metav1.OwnerReference {
	return *metav1.NewControllerRef(owner, a.Kind)
}
