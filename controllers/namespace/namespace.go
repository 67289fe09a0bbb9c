// Package namespace deletes the contents of terminating namespaces and then finalizes the namespaces.
package namespace

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Name of the controller.
const Name = "namespace"

const (
	parallel = 20 // concurrent deletions
	// A namespace with contents is checked again after half the time since its last change, within these bounds; the end
	// of a pod wakes it earlier. 15 s is upstream's estimate for objects with finalizers.
	minRecheck, maxRecheck = time.Second, 15 * time.Second
)

// Config of the controller.
type Config struct {
	Kinds client.Kinds // the served kinds
	// Silent returns the groups and versions whose servers do not respond: they may have objects in any namespace. nil:
	// there are none.
	Silent  func() []string
	Workers int // --concurrent-namespace-syncs; 0 means upstream's 10
}

// Controller deletes the contents of terminating namespaces.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, cfg Config) *Controller {
	cfg.Workers = cmp.Or(cfg.Workers, 10)
	return &Controller{deps: deps, cfg: cfg}
}

// stages are deleted one after the other: what a pod mounts exists until the pod has ended (upstream:
// OrderedNamespaceDeletion).
func stages(kinds []client.Kind) (stages [2][]client.Kind) {
	for _, kind := range kinds {
		switch {
		case kind.Resource == client.Pods:
			stages[0] = append(stages[0], kind)
		case kind.Namespaced:
			stages[1] = append(stages[1], kind)
		}
	}
	return stages
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[string]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[string]{
			{Selector: client.Selector{Resource: client.Namespaces}, Keys: follow.Plain(onNamespace)},
			{Selector: client.Selector{Resource: client.Pods}, Keys: c.onPod},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

// onNamespace wakes a terminating namespace.
func onNamespace(_, new client.Object) []string {
	if new != nil && new.GetDeletionTimestamp() != nil {
		return []string{new.GetName()}
	}
	return nil
}

// onPod wakes the pod's namespace if it is terminating.
func (c *Controller) onPod(ctx context.Context, old, new client.Object) ([]string, error) {
	if new != nil {
		return nil, nil
	}
	ns, err := client.Get[*corev1.Namespace](ctx, c.deps.Client, "", old.GetNamespace())
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case ns.DeletionTimestamp == nil:
		return nil, nil
	}
	return []string{ns.Name}, nil
}

// reconcile deletes the contents, pods first, and finalizes the namespace when it is empty.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	ns, err := client.Get[*corev1.Namespace](ctx, c.deps.Client, "", name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return 0, nil
	}
	for _, stage := range stages(c.cfg.Kinds.Now()) {
		deleteErr := c.deleteContents(ctx, name, stage)
		left, err := c.remaining(ctx, name, stage)
		if err != nil {
			return 0, err
		}
		if len(left) == 0 && deleteErr == nil {
			continue
		}
		if ns, err = c.report(ctx, ns, left, deleteErr); err != nil {
			return 0, err
		}
		return c.recheck(ns), deleteErr
	}
	if len(c.silent()) == 0 {
		return 0, c.finalize(ctx, ns)
	}
	if ns, err = c.report(ctx, ns, nil, nil); err != nil {
		return 0, err
	}
	return c.recheck(ns), nil
}

func (c *Controller) silent() []string {
	if c.cfg.Silent == nil {
		return nil
	}
	return c.cfg.Silent()
}

// recheck returns the time until the next check, which grows while nothing changes.
func (c *Controller) recheck(ns *corev1.Namespace) time.Duration {
	last := ns.DeletionTimestamp.Time
	for _, cond := range ns.Status.Conditions {
		if cond.LastTransitionTime.After(last) {
			last = cond.LastTransitionTime.Time
		}
	}
	return min(max(c.deps.Clock.Since(last)/2, minRecheck), maxRecheck)
}

// deleteContents deletes all objects of these kinds that are not terminating yet.
func (c *Controller) deleteContents(ctx context.Context, name string, stage []client.Kind) error {
	var errs []error
	for _, kind := range stage {
		objs, _, err := c.deps.Client.List(ctx, client.Selector{Resource: kind.Resource, Namespace: name})
		if apierrors.IsNotFound(err) {
			continue // a custom kind that is no longer served
		}
		errs = append(errs, err)
		errs = append(errs, follow.Each(parallel, objs, func(obj client.Object) error {
			if obj.GetDeletionTimestamp() != nil {
				return nil
			}
			ref := client.Ref{Resource: kind.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}
			_, err := c.deps.Client.Delete(ctx, ref, metav1.DeleteOptions{
				PropagationPolicy: new(metav1.DeletePropagationBackground),
				Preconditions:     metav1.NewUIDPreconditions(string(obj.GetUID())),
			})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil // deleted or replaced meanwhile; the next sync sees it
			}
			return err
		})...)
	}
	return errors.Join(errs...)
}

// remaining returns the remaining objects of these kinds.
func (c *Controller) remaining(ctx context.Context, name string, stage []client.Kind) ([]leftover, error) {
	var left []leftover
	for _, kind := range stage {
		objs, _, err := c.deps.Client.List(ctx, client.Selector{Resource: kind.Resource, Namespace: name})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(objs) > 0 {
			left = append(left, leftoverOf(kind, objs))
		}
	}
	return left, nil
}

// finalize removes the finalizer of the empty namespace.
func (c *Controller) finalize(ctx context.Context, ns *corev1.Namespace) error {
	_, err := client.Update(ctx, c.deps.Client, ns, "finalize", func(n *corev1.Namespace) error {
		n.UID = ns.UID // conflicts with another namespace of the same name
		n.Spec.Finalizers = slices.DeleteFunc(n.Spec.Finalizers,
			func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
