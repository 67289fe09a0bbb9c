package registry

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/registry/managed"
)

// writer identifies the field manager of a write.
type writer struct {
	manager string
	tracked bool // the write has already updated managedFields
}

type writerKey struct{}

// ownManager is the field manager of writes by this process.
const ownManager = "monopod"

// WithFieldManager returns a context whose writes record manager in the managedFields of tracked objects (see package
// managed).
func WithFieldManager(ctx context.Context, manager string) context.Context {
	return context.WithValue(ctx, writerKey{}, writer{manager: manager})
}

func writerOf(ctx context.Context) writer {
	if w, ok := ctx.Value(writerKey{}).(writer); ok {
		return w
	}
	return writer{manager: ownManager}
}

// untracked returns a context whose writes update managedFields themselves.
func untracked(ctx context.Context) context.Context {
	return context.WithValue(ctx, writerKey{}, writer{writerOf(ctx).manager, true})
}

// ApplyOptions are the options of Apply.
type ApplyOptions struct {
	Manager string // required
	Force   bool   // take over fields of other managers
	// MayCreate returns an error if the user must not create the object; nil: creation is always allowed.
	MayCreate func() error
}

// maxApplied is the maximum size of an applied object, in bytes of protobuf. Each apply adds fields, so that the limit
// on request bodies is not enough.
const maxApplied = 3 << 20

// Apply implements server-side apply. It sets the fields of patch, which opts.Manager then owns, and removes the
// manager's fields that patch no longer contains. Unless forced, it returns a conflict (409) if fields of other
// managers would change. It creates the object if it does not exist, and then reports created.
func (r *Registry) Apply(ctx context.Context, ref client.Ref, patch *unstructured.Unstructured,
	opts ApplyOptions) (obj Object, created bool, err error) {
	res, err := r.Resource(ref.Resource)
	if err != nil {
		return nil, false, err
	}
	target := r.Target(res, ref.Subresource)
	apply := func(cur Object) (Object, error) {
		next, err := r.fields.Apply(target, cur, patch.DeepCopy(), opts.Manager, opts.Force)
		if err != nil {
			return nil, err
		}
		if o, ok := next.(interface{ Size() int }); ok && o.Size() > maxApplied {
			err = apierrors.NewRequestEntityTooLargeError(
				fmt.Sprintf("the patch results in an object of %d bytes, limit is %d", o.Size(), maxApplied))
		}
		return next, err
	}
	ctx = untracked(ctx)
	for {
		obj, err = r.Update(ctx, ref, apply)
		if !apierrors.IsNotFound(err) || ref.Subresource != "" {
			return obj, false, err
		}
		if _, missing := r.Get(ctx, ref); !apierrors.IsNotFound(missing) { // the namespace or the kind is missing
			return obj, false, err
		}
		if opts.MayCreate != nil {
			if err := opts.MayCreate(); err != nil {
				return nil, false, err
			}
		}
		if obj, err = apply(nil); err != nil {
			return nil, false, err
		}
		if uid := obj.GetUID(); uid != "" {
			return nil, false,
				apierror.Conflict(res, ref.Name,
					fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
		}
		if obj, err = r.Create(ctx, obj); !apierrors.IsAlreadyExists(err) {
			return obj, err == nil, err
		}
	}
}

// track records the writer in next's managedFields; cur is nil for a creation. It ignores objects that have never been
// applied.
func (r *Registry) track(ctx context.Context, res *Resource, sub string, next, cur Object) {
	w := writerOf(ctx)
	if w.tracked || !managed.Tracked(next, cur) {
		return
	}
	r.complete(res, next, cur)
	if err := r.fields.Update(r.Target(res, sub), next, cur, w.manager); err != nil {
		r.log.Warn("failed to update managedFields", zap.String("resource", res.GVR.Resource),
			zap.String("namespace", next.GetNamespace()), zap.String("name", next.GetName()), zap.Error(err))
	}
}

// trackScale is track for a write to the object's Scale. It updates next's managedFields.
func (r *Registry) trackScale(ctx context.Context, res *Resource, next, cur Object, scale,
	old *autoscalingv1.Scale) error {
	if w := writerOf(ctx); !w.tracked {
		if err := r.fields.Update(r.Target(res, "scale"), scale, old, w.manager); err != nil {
			return err
		}
	}
	entries, err := managed.FromScale(res, cur, scale)
	next.SetManagedFields(entries)
	return err
}
