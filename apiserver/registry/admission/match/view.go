package match

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/kind"
)

// viewKey is the context key of viewWrite.
type viewKey struct{}

// viewWrite is a write of a stored resource through one of its views.
type viewWrite struct {
	view, base *kind.Resource
	deferred   bool
}

// WithView returns the context of a write of base through a view. If deferred is set, the view's validation runs after
// the mutating webhooks, because these may complete the object.
func WithView(ctx context.Context, view, base *kind.Resource, deferred bool) context.Context {
	return context.WithValue(ctx, viewKey{}, viewWrite{view, base, deferred})
}

// Requested returns the version through which a write of res came; nil: res.
func Requested(ctx context.Context, res *kind.Resource) *kind.Resource {
	if t, ok := ctx.Value(viewKey{}).(viewWrite); ok && t.base == res {
		return t.view
	}
	return nil
}

// DeferredErrors runs the deferred validation of WithView and returns its errors.
func DeferredErrors(ctx context.Context, res *kind.Resource, next, cur kind.Object, sub string) field.ErrorList {
	t, _ := ctx.Value(viewKey{}).(viewWrite)
	if !t.deferred || t.base != res || t.view.Validate == nil {
		return nil
	}
	var err error
	if cur != nil {
		cur, err = t.view.View.FromStored(ctx, cur)
	}
	if err == nil {
		next, err = t.view.View.Convert(ctx, next)
	}
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return t.view.Validate(next, cur, sub)
}

// partKey is the context key of WithPartOf.
type partKey struct{}

// WithPartOf returns the context of a write on behalf of a write to the subresource, see admission.Request.PartOf.
func WithPartOf(ctx context.Context, sub string) context.Context {
	return context.WithValue(ctx, partKey{}, sub)
}

// PartOf returns the subresource of WithPartOf; empty: none.
func PartOf(ctx context.Context) string {
	sub, _ := ctx.Value(partKey{}).(string)
	return sub
}
