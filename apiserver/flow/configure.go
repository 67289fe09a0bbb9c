package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Name of the controller.
const Name = "flowcontrol"

// Apply applies a configuration. It does not modify the objects.
type Apply func([]*flowcontrolv1.FlowSchema, []*flowcontrolv1.PriorityLevelConfiguration)

// Controller follows FlowSchemas and PriorityLevelConfigurations.
type Controller struct {
	deps  follow.Deps
	apply Apply
}

var _ follow.Controller = (*Controller)(nil)

// NewController returns the controller.
func NewController(deps follow.Deps, apply Apply) *Controller { return &Controller{deps, apply} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	all := follow.Plain(func(_, _ client.Object) []string { return []string{Name} })
	return follow.New(c.deps, follow.Config[string]{
		Name: Name, Start: []string{Name},
		Sources: []follow.Source[string]{
			{Selector: client.Selector{Resource: client.FlowSchemas}, Keys: all},
			{Selector: client.Selector{Resource: client.PriorityLevelConfigurations}, Keys: all},
		},
		Reconcile: func(ctx context.Context, _ string) (time.Duration, error) { return 0, c.reconcile(ctx) },
	}).Run(ctx)
}

// reconcile applies the objects, restores the mandatory ones, and sets the status of schemas. Its writes wake it again.
func (c *Controller) reconcile(ctx context.Context) error {
	schemas, err := client.List[*flowcontrolv1.FlowSchema](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return err
	}
	levels, err := client.List[*flowcontrolv1.PriorityLevelConfiguration](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return err
	}
	c.apply(schemas, levels)
	errs := []error{Ensure(ctx, c.deps.Client)}
	for _, fs := range schemas {
		exists := slices.ContainsFunc(levels, func(pl *flowcontrolv1.PriorityLevelConfiguration) bool {
			return pl.Name == fs.Spec.PriorityLevelConfiguration.Name
		})
		if err := c.setDangling(ctx, fs, !exists); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// setDangling sets upstream's condition that says whether the level of a schema is missing.
func (c *Controller) setDangling(ctx context.Context, fs *flowcontrolv1.FlowSchema, dangling bool) error {
	want := flowcontrolv1.FlowSchemaCondition{Type: flowcontrolv1.FlowSchemaConditionDangling,
		Status: flowcontrolv1.ConditionFalse, Reason: "Found"}
	says := "and it exists"
	if dangling {
		want.Status, want.Reason, says = flowcontrolv1.ConditionTrue, "NotFound", "but there is no such object"
	}
	want.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q %s",
		fs.Spec.PriorityLevelConfiguration.Name, says)
	is := func(c flowcontrolv1.FlowSchemaCondition) bool { return c.Type == want.Type }
	same := func(c flowcontrolv1.FlowSchemaCondition) bool {
		return is(c) && c.Status == want.Status && c.Reason == want.Reason && c.Message == want.Message
	}
	if slices.ContainsFunc(fs.Status.Conditions, same) {
		return nil
	}
	want.LastTransitionTime = metav1.NewTime(c.deps.Clock.Now())
	_, err := client.Update(ctx, c.deps.Client, fs, "status", func(fs *flowcontrolv1.FlowSchema) error {
		fs.Status.Conditions = append(slices.DeleteFunc(fs.Status.Conditions, is), want)
		return nil
	})
	return err
}
