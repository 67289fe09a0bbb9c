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

// DefinitionsName is the store's name of definitions. The name of a definition is that of the objects of its kind.
var DefinitionsName = client.CustomResourceDefinitions.Resource + "." + client.CustomResourceDefinitions.Group

// terminatingMessage is the message for a creation while the definition is deleted.
const terminatingMessage = "create not allowed while custom resource definition is terminating"

// ConfirmDefinition returns an error, and removes the new object of a custom kind, if its definition was deleted while the object
// was created: the deletion of the definition's objects may have ended before the object was stored.
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

// RemoveOrphans removes the objects that are older than their new definition e. A process that was killed while it refused one
// of an earlier definition of the same name can leave them behind.
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
