package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/registry/custom"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

const (
	// suffixLength and maxBase limit a generated name to 63 characters (upstream: names.SimpleNameGenerator).
	suffixLength = 5
	maxBase      = 63 - suffixLength
	// generateTries is the maximum number of generated names (upstream: registry.maxNameGenerationCreateAttempts).
	generateTries = 8
)

// Create implements client.Client.
func (r *Registry) Create(ctx context.Context, obj Object) (Object, error) {
	res := r.FindFor(obj)
	if res == nil {
		return nil, apierror.BadRequest(fmt.Sprintf("objects of type %T are not served", obj))
	}
	if res.Virtual {
		return nil, apierror.NoResource(res.GVR)
	}
	if res.View != nil {
		return viewRegistry{r, res}.create(ctx, obj)
	}
	return r.create(ctx, res, obj)
}

// create stores an object of a resource that is not a view. It generates a name if the object has none.
func (r *Registry) create(ctx context.Context, res *Resource, obj Object) (Object, error) {
	base := obj.GetGenerateName()
	if obj.GetName() != "" || base == "" {
		return r.insert(ctx, res, obj, false)
	}
	base = base[:min(len(base), maxBase)]
	for try := 1; ; try++ {
		named := obj.DeepCopyObject().(Object)
		named.SetName(base + utilrand.String(suffixLength))
		stored, err := r.insert(ctx, res, named, true)
		if !apierrors.IsAlreadyExists(err) || try == generateTries {
			return stored, err
		}
	}
}

// complete sets the defaults and timestamps of next, which replaces cur; cur is nil for a creation.
func (r *Registry) complete(res *Resource, next, cur Object) {
	if res.Default != nil {
		res.Default(next)
	}
	if res.Stamp != nil {
		res.Stamp(next, cur, r.now())
	}
}

// insert stores obj, in this order: the metadata that only the server sets, defaults, mutating admission, addresses
// and ports, validation, validating admission, the write. It returns 409 if the name is in use.
func (r *Registry) insert(ctx context.Context, res *Resource, obj Object, generated bool) (Object, error) {
	ctx, done := admission.During(ctx)
	defer done()
	req := r.request(ctx, admission.Create, res, "", obj, nil)
	req.Generated = generated
	if !res.Namespaced {
		obj.SetNamespace("")
	}
	obj.SetUID(types.UID(uuid.NewString()))
	obj.SetCreationTimestamp(r.now())
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	obj.GetObjectKind().SetGroupVersionKind(res.GVK())
	r.track(ctx, res, "", obj, nil)
	r.complete(res, obj, nil)
	if err := r.admission.Mutate(ctx, req); err != nil {
		return nil, err
	}
	if res.Prepare != nil {
		res.Prepare(obj, nil, "")
	}
	r.complete(res, obj, nil) // again, for fields that admission or Prepare set
	kind.CutTimes(obj)
	var reservations releases
	defer reservations.run()
	if err := r.reserve(ctx, obj, nil, "", &reservations); err != nil {
		return nil, err
	}
	errs := match.DeferredErrors(ctx, res, obj, nil, "")
	errs = append(errs,
		validation.ValidateObjectMetaAccessor(obj, res.Namespaced, res.NameErrors, field.NewPath("metadata"))...)
	if res.Schema == nil { // as upstream: for custom objects, warnings report them
		errs = append(errs, check.Finalizers(obj.GetFinalizers(), field.NewPath("metadata", "finalizers"))...)
	}
	if res.Validate != nil {
		errs = append(errs, res.Validate(obj, nil, "")...)
	}
	if len(errs) > 0 {
		return nil, apierror.Invalid(res, nameOr(obj), errs)
	}
	if err := r.admission.Validate(ctx, req); err != nil {
		return nil, err
	}
	if obj.GetResourceVersion() != "" && !isDryRun(ctx) { // after validation and not for dry runs, as upstream's storage
		return nil, apierror.BadRequest("resourceVersion should not be set on objects to be created")
	}
	warnings(ctx, res, obj, nil)
	stored, err := r.write(ctx, res, obj.GetNamespace(), obj.GetName(), func(cur Object) (Object, error) {
		if cur != nil {
			return nil, apierrors.NewAlreadyExists(res.GVR.GroupResource(), obj.GetName())
		}
		return obj, nil
	})
	if err == nil && res.Schema != nil && !isDryRun(ctx) {
		err = custom.ConfirmDefinition(ctx, r.store, res, stored)
	}
	if err != nil {
		return nil, err
	}
	r.warnInert(ctx, res, stored)
	if r.establish > 0 && res.GVR == client.CustomResourceDefinitions && !isDryRun(ctx) {
		r.waitServed(ctx, stored.GetName())
	}
	return stored, nil
}

// request returns the admission request of a write.
func (r *Registry) request(ctx context.Context, op admission.Operation, res *Resource, sub string,
	obj, old Object) *admission.Request {
	named := obj
	if named == nil {
		named = old
	}
	return &admission.Request{
		Operation: op, Resource: res, Subresource: sub, Namespace: named.GetNamespace(), Name: named.GetName(),
		Object: obj, Old: old, User: auth.UserOf(ctx), DryRun: isDryRun(ctx),
		Warning: func(text string) { Warn(ctx, text) }, Requested: match.Requested(ctx, res), PartOf: match.PartOf(ctx),
	}
}

// nameOr returns the object's name or generateName, for a message.
func nameOr(obj metav1.Object) string {
	if obj.GetName() == "" {
		return obj.GetGenerateName()
	}
	return obj.GetName()
}

// write is the only function that writes to the store. It handles dry runs and translates errors. For a removed object
// it returns the last state.
func (r *Registry) write(ctx context.Context, res *Resource, namespace, name string,
	change store.Change) (Object, error) {
	run := change
	if isDryRun(ctx) {
		run = func(cur Object) (Object, error) {
			next, err := change(cur)
			if err == nil && next == nil {
				next = cur
			}
			if err == nil {
				err = dryRunResult{next}
			}
			return nil, err
		}
	}
	e, err := r.store.Update(ctx, res.Key(namespace, name), run)
	if dry := (dryRunResult{}); errors.As(err, &dry) {
		return dry.obj, nil
	}
	if err != nil {
		return nil, apierror.Of(err, res, name)
	}
	r.configurations.Written(ctx, res.GVR)
	return e.Object, nil
}
