// Package storageversionmigrator rewrites the objects of a kind in the current storage version when a
// StorageVersionMigration requests it. Afterwards a definition may drop the versions in which no object is stored any
// more.
package storageversionmigrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Name is upstream's name of the controller.
const Name = "storage-version-migrator-controller"

// The reasons of the conditions are upstream's.
const (
	reasonRunning   = "StorageVersionMigrationInProgress"
	reasonSucceeded = "StorageVersionMigrationSucceeded"
	reasonFailed    = "StorageVersionMigrationFailed"
)

// kindTimeout is how long a new migration waits for a kind that is not served yet (upstream's).
const kindTimeout = time.Minute

// Config of the controller.
type Config struct {
	Kinds client.Kinds
}

// Controller runs one migration at a time.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

type migration = migrationv1.StorageVersionMigration

// New returns the controller.
func New(deps follow.Deps, cfg Config) *Controller { return &Controller{deps: deps, cfg: cfg} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name: Name,
		Sources: []follow.Source[follow.Key]{{Selector: client.Selector{Resource: client.StorageVersionMigrations},
			Keys: follow.Plain(waiting)}},
		Reconcile: func(ctx context.Context, key follow.Key) (time.Duration, error) {
			again, err := c.reconcile(ctx, key)
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return again, err
		},
	}).Run(ctx)
}

// waiting wakes migrations that have not ended.
func waiting(_, new client.Object) []follow.Key {
	if m, ok := new.(*migration); ok && !ended(m) && m.DeletionTimestamp == nil {
		return []follow.Key{follow.KeyOf(m)}
	}
	return nil
}

func ended(m *migration) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(migrationv1.MigrationSucceeded)) ||
		meta.IsStatusConditionTrue(m.Status.Conditions, string(migrationv1.MigrationFailed))
}

// reconcile runs a migration to its end, or returns the time until it must be tried again. After a restart it begins
// again, which is safe: objects in the current version are not written.
func (c *Controller) reconcile(ctx context.Context, key follow.Key) (again time.Duration, err error) {
	m, err := client.Get[*migration](ctx, c.deps.Client, "", key.Name)
	if err != nil || ended(m) || m.DeletionTimestamp != nil {
		return 0, err
	}
	resource, ok := c.find(m)
	if !ok {
		if age := c.deps.Clock.Since(m.CreationTimestamp.Time); age < kindTimeout {
			return min(max(age, time.Second), max(kindTimeout-age, time.Second)), nil
		}
		return 0, c.end(ctx, m, migrationv1.MigrationFailed, reasonFailed,
			fmt.Sprintf("resource %s is not served", m.Spec.Resource.String()))
	}
	objects, version, err := c.deps.Client.List(ctx, client.Selector{Resource: resource.Resource})
	if err != nil {
		return 0, err
	}
	_, err = client.Update(ctx, c.deps.Client, m, "status", func(m *migration) error {
		if m.Status.ResourceVersion == "" { // from this revision on, all objects are stored in the current version
			m.Status.ResourceVersion = version
		}
		c.set(m, migrationv1.MigrationRunning, metav1.ConditionTrue, reasonRunning, "")
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, obj := range objects {
		err := c.store(ctx, resource, obj)
		if transient(err) {
			return 0, err // retried after a backoff
		}
		if err != nil {
			return 0, c.end(ctx, m, migrationv1.MigrationFailed, reasonFailed, err.Error())
		}
	}
	return 0, c.end(ctx, m, migrationv1.MigrationSucceeded, reasonSucceeded, "")
}

// find returns the kind that a migration names.
func (c *Controller) find(m *migration) (client.Kind, bool) {
	for _, k := range c.cfg.Kinds.Now() {
		if k.Resource.Group == m.Spec.Resource.Group && k.Resource.Resource == m.Spec.Resource.Resource {
			return k, true
		}
	}
	return client.Kind{}, false
}

// errGone stops the write of an object that was replaced.
var errGone = errors.New("the object is gone")

// store writes an object unchanged: the server stores it in the current version, if it is not already.
func (c *Controller) store(ctx context.Context, kind client.Kind, obj client.Object) error {
	ref := client.Ref{Resource: kind.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	_, err := c.deps.Client.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
		if cur.GetUID() != obj.GetUID() {
			return nil, errGone
		}
		return cur.DeepCopyObject().(client.Object), nil
	})
	if err == nil || errors.Is(err, errGone) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("cannot store %s %s again: %w", ref.Resource.Resource, follow.KeyOf(obj), err)
}

// transient reports whether a later write may succeed.
func transient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || errors.Is(err, context.Canceled)
}

// end records the result.
func (c *Controller) end(ctx context.Context, m *migration, typ migrationv1.MigrationConditionType, reason,
	message string) error {
	_, err := client.Update(ctx, c.deps.Client, m, "status", func(m *migration) error {
		c.set(m, migrationv1.MigrationRunning, metav1.ConditionFalse, reason, message)
		c.set(m, typ, metav1.ConditionTrue, reason, message)
		return nil
	})
	return err
}

func (c *Controller) set(m *migration, typ migrationv1.MigrationConditionType, status metav1.ConditionStatus, reason,
	message string) {
	if old := meta.FindStatusCondition(m.Status.Conditions, string(typ)); old != nil && old.Status == status {
		return
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: string(typ), Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(c.deps.Clock.Now())})
}
