package custom

import (
	"context"
	"errors"
	"net/http"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

// DefinitionsName is the store's name of the resource CustomResourceDefinition. The name of a definition is the store's
// name of the resource that it defines.
var DefinitionsName = client.CustomResourceDefinitions.Resource + "." + client.CustomResourceDefinitions.Group

// terminatingMessage is the error of a creation while the definition is being deleted.
const terminatingMessage = "create not allowed while custom resource definition is terminating"

// ConfirmDefinition removes a new object of a custom kind and returns an error if the definition was deleted during the
// creation: the deletion of the definition's objects may have missed the object.
func ConfirmDefinition(ctx context.Context, s store.Store, res *kind.Resource, stored kind.Object) error {
	def, err := s.Get(ctx, store.Key{Resource: DefinitionsName, Name: res.StoreName()})
	if err == nil && def.Object.GetDeletionTimestamp() == nil {
		return nil
	}
	_, removal := s.Update(context.WithoutCancel(ctx), res.Key(stored.GetNamespace(), stored.GetName()),
		func(cur store.Object) (store.Object, error) {
			if cur == nil || cur.GetUID() != stored.GetUID() {
				return cur, nil
			}
			return nil, nil
		})
	switch {
	case removal != nil:
		return apierrors.NewInternalError(removal)
	case err == nil:
		return apierrors.NewForbidden(res.GVR.GroupResource(), stored.GetName(), errors.New(terminatingMessage))
	}
	gone := apierrors.NewGenericServerResponse(http.StatusNotFound, "", res.GVR.GroupResource(), "", "", 0, false)
	gone.ErrStatus.Message = "the server could not find the requested resource"
	return gone
}

// RemoveOrphans removes objects that are older than their new definition e. They remain if the process was killed
// between the creation of an object of an earlier definition and ConfirmDefinition.
func RemoveOrphans(ctx context.Context, s store.Store, e *store.Entry, log *zap.Logger) {
	old, _, err := s.List(ctx, store.Selector{Resource: e.Key.Name})
	for _, orphan := range old {
		if orphan.Rev > e.Rev {
			continue
		}
		log.Warn("object of an earlier definition removed", zap.String("definition", e.Key.Name),
			zap.String("namespace", orphan.Key.Namespace), zap.String("name", orphan.Key.Name))
		if _, removal := s.Update(ctx, orphan.Key,
			func(store.Object) (store.Object, error) { return nil, nil }); removal != nil {
			err = removal
		}
	}
	if err != nil && ctx.Err() == nil {
		log.Error("failed to remove objects of an earlier definition", zap.String("definition", e.Key.Name), zap.Error(err))
	}
}
