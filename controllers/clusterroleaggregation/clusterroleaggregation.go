// Package clusterroleaggregation maintains the rules of aggregated ClusterRoles, such as admin, edit and view.
package clusterroleaggregation

import (
	"context"
	"errors"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/clusterrole"
	"monopod/apiserver/kit/follow"
)

// Name is upstream's name of the controller.
const Name = "clusterrole-aggregation-controller"

// everything is the only key, because a role may belong to any aggregated role.
type everything struct{}

// Controller updates the rules of aggregated ClusterRoles.
type Controller struct{ deps follow.Deps }

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps) *Controller { return &Controller{deps: deps} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[everything]{
		Name: Name,
		Sources: []follow.Source[everything]{{
			Selector: client.Selector{Resource: client.ClusterRoles},
			Keys:     follow.Plain(func(_, _ client.Object) []everything { return []everything{{}} }),
		}},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

// reconcile updates the aggregated roles whose rules differ. An update wakes the controller again, for aggregated roles
// that aggregate others.
func (c *Controller) reconcile(ctx context.Context, _ everything) (time.Duration, error) {
	roles, err := client.List[*rbacv1.ClusterRole](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, role := range roles {
		if role.AggregationRule != nil {
			errs = append(errs, c.write(ctx, role, roles))
		}
	}
	return 0, errors.Join(errs...)
}

func (c *Controller) write(ctx context.Context, role *rbacv1.ClusterRole, roles []*rbacv1.ClusterRole) error {
	rules, err := clusterrole.Aggregate(role, roles)
	if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
		return err
	}
	_, err = client.Update(ctx, c.deps.Client, role, "", func(cur *rbacv1.ClusterRole) error {
		if cur.AggregationRule != nil {
			cur.Rules = rules
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
