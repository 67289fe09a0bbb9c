package registry

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/managed"
)

// writer is who writes, for managedFields.
type writer struct {
	manager string
	tracked bool // the write has noted its fields by itself
}

type writerKey struct{}

// ownManager is the field manager of writes from inside.
const ownManager = "monopod"

// WithFieldManager returns a context whose writes are noted as manager's in the
// managedFields of objects that are tracked (see package managed).
func WithFieldManager(ctx context.Context, manager string) context.Context {
	return context.WithValue(ctx, writerKey{}, writer{manager: manager})
}

func writerOf(ctx context.Context) writer {
	if w, ok := ctx.Value(writerKey{}).(writer); ok {
		return w
	}
	return writer{manager: ownManager}
}

// untracked returns a context whose writes see to managedFields by themselves.
func untracked(ctx context.Context) context.Context {
	return context.WithValue(ctx, writerKey{}, writer{writerOf(ctx).manager, true})
}

// ApplyOptions say who applies, and how.
type ApplyOptions struct {
	Manager string // required
	Force   bool   // take over what others own
	// MayCreate is asked before an object is created that did not exist; nil: it may.
	MayCreate func() error
}

// Apply is server-side apply: it makes the object at ref have the fields of
// patch, which become the manager's, and takes away those that were the manager's
// and are not in patch any more. Fields of other managers that would change are a
// conflict, 409, unless it is forced. An object that does not exist is
// created, and created is true.
func (r *Registry) Apply(ctx context.Context, ref client.Ref, patch *unstructured.Unstructured, opts ApplyOptions) (obj Object, created bool, err error) {
	res, err := r.Resource(ref.Resource)
	if err != nil {
		return nil, false, err
	}
	target := r.target(res, ref.Subresource)
	apply := func(cur Object) (Object, error) {
		next, err := r.fields.Apply(target, cur, patch.DeepCopy(), opts.Manager, opts.Force)
		if err != nil {
			return nil, err
		}
		return next, tooLarge(next)
	}
	ctx = untracked(ctx)
	for {
		obj, err = r.Update(ctx, ref, apply)
		if !apierrors.IsNotFound(err) || ref.Subresource != "" || !r.absent(ctx, ref) {
			return obj, false, err
		}
		if opts.MayCreate != nil {
			if err := opts.MayCreate(); err != nil {
				return nil, false, err
			}
		}
		obj, err = r.applyNew(ctx, res, ref, apply)
		if !apierrors.IsAlreadyExists(err) {
			return obj, err == nil, err
		}
	}
}

// maxApplied is the largest object that applies may make, in bytes of protobuf:
// each adds what its manager wants, so that bounded bodies alone bound nothing.
const maxApplied = 3 << 20

// tooLarge is 413 for an object that must not be stored.
func tooLarge(obj Object) error {
	if o, ok := obj.(interface{ Size() int }); ok && o.Size() > maxApplied {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patch makes an object of %d bytes, limit is %d", o.Size(), maxApplied))
	}
	return nil
}

// absent tells an object that does not exist from other things that are missing.
func (r *Registry) absent(ctx context.Context, ref client.Ref) bool {
	_, err := r.Get(ctx, ref)
	return apierrors.IsNotFound(err)
}

// applyNew creates what an apply says.
func (r *Registry) applyNew(ctx context.Context, res *Resource, ref client.Ref, apply client.Change) (Object, error) {
	obj, err := apply(nil)
	if err != nil {
		return nil, err
	}
	if uid := obj.GetUID(); uid != "" {
		return nil, errConflict(res, ref.Name, fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	return r.Create(ctx, obj)
}

// track notes in next's managedFields who wrote it over cur, which is nil for a
// creation. Objects that were never applied are left alone.
func (r *Registry) track(ctx context.Context, res *Resource, sub string, next, cur Object) {
	w := writerOf(ctx)
	if w.tracked || !managed.Tracked(next, cur) {
		return
	}
	defaults(res, next)
	if err := r.fields.Update(r.target(res, sub), next, cur, w.manager); err != nil {
		r.log.Warn("the fields of a write cannot be tracked", zap.String("resource", res.GVR.Resource),
			zap.String("namespace", next.GetNamespace()), zap.String("name", next.GetName()), zap.Error(err))
	}
}

// trackScale is track for a write to the object's Scale; next gets the
// managedFields that follow.
func (r *Registry) trackScale(ctx context.Context, res *Resource, next, cur Object, scale, old *autoscalingv1.Scale) error {
	if w := writerOf(ctx); !w.tracked {
		if err := r.fields.Update(r.target(res, "scale"), scale, old, w.manager); err != nil {
			return err
		}
	}
	entries, err := managed.FromScale(res, cur, scale)
	next.SetManagedFields(entries)
	return err
}
