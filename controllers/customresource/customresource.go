// Package customresource maintains CustomResourceDefinitions: it accepts their names, marks them as established, and
// deletes their objects. Every server runs it, and no flag disables it: it is not in controllers.All.
package customresource

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/kit/follow"
)

// Name of the controller.
const Name = "customresource"

const (
	parallel = 20 // concurrent deletions
	// installDelay is the time after which the controller checks again whether a kind is served.
	installDelay = 5 * time.Millisecond
	// The objects of a deleted definition that have finalizers are checked again after half the time since the deletion,
	// within these bounds (upstream: every 5 s).
	minRecheck, maxRecheck = 20 * time.Millisecond, 5 * time.Second
)

type definition = crd.Definition

// Controller maintains CustomResourceDefinitions.
type Controller struct {
	deps follow.Deps
	loop *follow.Loop[string]
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps) *Controller {
	c := &Controller{deps: deps}
	c.loop = follow.New(deps, follow.Config[string]{
		Name: Name,
		Sources: []follow.Source[string]{{
			Selector: client.Selector{Resource: client.CustomResourceDefinitions},
			Keys: follow.Plain(func(old, new client.Object) []string {
				if new == nil {
					return []string{old.GetName()}
				}
				return []string{new.GetName()}
			}),
		}},
		Reconcile: c.reconcile, // by one worker: names are accepted one definition at a time
	})
	return c
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	def, err := client.Get[*definition](ctx, c.deps.Client, "", name)
	if apierrors.IsNotFound(err) {
		return 0, c.wakeConflicting(ctx, name)
	}
	if err != nil {
		return 0, err
	}
	if def.DeletionTimestamp != nil {
		return c.terminate(ctx, def)
	}
	all, err := client.List[*definition](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return 0, err
	}
	return c.establish(ctx, def, all)
}

// wakeConflicting wakes the other definitions of a group when a definition is deleted: its names are free now.
func (c *Controller) wakeConflicting(ctx context.Context, name string) error {
	_, group, _ := strings.Cut(name, ".")
	all, err := client.List[*definition](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Spec.Group == group &&
			!apihelpers.IsCRDConditionTrue(&other.CustomResourceDefinition, apiextensionsv1.NamesAccepted) {
			c.loop.Add(other.Name)
		}
	}
	return nil
}

// establish accepts the definition's names, and marks it as established once its kind is served.
func (c *Controller) establish(ctx context.Context, def *definition, all []*definition) (time.Duration, error) {
	next := def.DeepCopy()
	renamed := accept(&next.CustomResourceDefinition, usedByOthers(def, all))
	changed := approve(&next.CustomResourceDefinition) || renamed
	if !changed && apihelpers.IsCRDConditionTrue(&next.CustomResourceDefinition, apiextensionsv1.NamesAccepted) &&
		!apihelpers.IsCRDConditionTrue(&next.CustomResourceDefinition, apiextensionsv1.Established) {
		if !c.served(ctx, next) {
			return installDelay, nil
		}
		apihelpers.SetCRDCondition(&next.CustomResourceDefinition, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
			Reason: "InitialNamesAccepted", Message: "the initial names have been accepted"})
		changed = true
	}
	if !changed {
		return 0, nil
	}
	if err := c.report(ctx, next); err != nil || !renamed {
		return 0, err
	}
	return 0, c.wakeConflicting(ctx, def.Name)
}

// resource returns the resource by which the objects of a definition are served, preferably that of the storage
// version. It returns false if no version is served.
func resource(def *definition) (schema.GroupVersionResource, bool) {
	var version string
	for _, v := range def.Spec.Versions {
		if v.Storage && (v.Served || def.DeletionTimestamp != nil) || v.Served && version == "" {
			version = v.Name
		}
	}
	resource := def.Status.AcceptedNames.Plural
	return schema.GroupVersionResource{Group: def.Spec.Group, Version: version, Resource: resource}, version != ""
}

// served reports whether this server serves the kind.
func (c *Controller) served(ctx context.Context, def *definition) bool {
	gvr, ok := resource(def)
	if !ok {
		return true
	}
	_, _, err := c.deps.Client.List(ctx, client.Selector{Resource: gvr})
	return err == nil
}

// report writes the status of def.
func (c *Controller) report(ctx context.Context, def *definition) error {
	_, err := client.Update(ctx, c.deps.Client, def, "status", func(cur *definition) error {
		// Conflicts with a newer state, which wakes the controller.
		cur.UID, cur.ResourceVersion = def.UID, def.ResourceVersion
		cur.Status = def.Status
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// terminate deletes the objects of a definition, and removes its finalizer when none is left.
func (c *Controller) terminate(ctx context.Context, def *definition) (time.Duration, error) {
	if !apihelpers.CRDHasFinalizer(&def.CustomResourceDefinition, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return 0, nil
	}
	cond := apihelpers.FindCRDCondition(&def.CustomResourceDefinition, apiextensionsv1.Terminating)
	if cond == nil || cond.Reason != "InstanceDeletionInProgress" {
		next := def.DeepCopy()
		apihelpers.SetCRDCondition(&next.CustomResourceDefinition, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
			Reason: "InstanceDeletionInProgress", Message: "CustomResource deletion is in progress"})
		return 0, c.report(ctx, next) // the change wakes the definition again
	}
	left, err := c.deleteObjects(ctx, def)
	switch {
	case err != nil:
		return 0, err
	case left > 0:
		return min(max(c.deps.Clock.Since(def.DeletionTimestamp.Time)/2, minRecheck), maxRecheck), nil
	}
	_, err = client.Update(ctx, c.deps.Client, def, "", func(cur *definition) error {
		cur.UID = def.UID
		apihelpers.CRDRemoveFinalizer(&cur.CustomResourceDefinition, apiextensionsv1.CustomResourceCleanupFinalizer)
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil
	}
	if err == nil {
		c.deps.Log.Debug("definition deleted with its objects", zap.String("name", def.Name))
	}
	return 0, err
}

// deleteObjects deletes the objects of a definition, and returns how many existed before.
func (c *Controller) deleteObjects(ctx context.Context, def *definition) (int, error) {
	gvr, ok := resource(def)
	crd := &def.CustomResourceDefinition
	if !ok || !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) &&
		!apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) {
		return 0, nil // it was never served
	}
	objs, _, err := c.deps.Client.List(ctx, client.Selector{Resource: gvr})
	if err != nil {
		return 0, err
	}
	return len(objs), errors.Join(follow.Each(parallel, objs, func(obj client.Object) error {
		if obj.GetDeletionTimestamp() != nil {
			return nil
		}
		ref := client.Ref{Resource: gvr, Namespace: obj.GetNamespace(), Name: obj.GetName()}
		_, err := c.deps.Client.Delete(ctx, ref, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(obj.GetUID()))})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // deleted or replaced meanwhile; the next sync sees it
		}
		return err
	})...)
}
