package deployment

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"monopod/controllers/internal/apitest"
)

// The rollback annotation of old clients causes a rollback to a revision. The controller removes the annotation.
func TestRollbackTo(t *testing.T) {
	for name, c := range map[string]struct {
		revision, image, reason string
	}{
		"the previous revision":     {"0", "v2", "DeploymentRollback"},
		"an older revision":         {"1", "v1", "DeploymentRollback"},
		"the current revision":      {"3", "v3", "DeploymentRollbackTemplateUnchanged"},
		"a missing revision":        {"9", "v3", "DeploymentRollbackRevisionNotFound"},
		"a paused Deployment waits": {"1", "v3", ""},
		"not a number":              {"last", "v3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, cl cluster) {
				cl.Create(web(1))
				for _, image := range []string{"v1", "v2", "v3"} {
					cl.image(image)
					cl.ready(-1)
				}
				cl.Events.Count()
				cl.change(func(d *appsv1.Deployment) {
					d.Spec.Paused = name == "a paused Deployment waits"
					d.Annotations[rollbackAnnotation] = c.revision
				})
				apitest.Settle(time.Second)
				d := cl.web()
				if got := d.Spec.Template.Spec.Containers[0].Image; got != c.image ||
					d.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != "" {
					t.Errorf("image %s, labels %v", got, d.Spec.Template.Labels)
				}
				if _, left := d.Annotations[rollbackAnnotation]; left != (c.reason == "") {
					t.Errorf("annotations %v", d.Annotations)
				}
				if n := cl.Events.Count(); c.reason != "" && n[c.reason] != 1 {
					t.Errorf("events %v, want one %s", n, c.reason)
				}
			})
		})
	}
}

func TestRollbackWithoutHistory(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(1))
		apitest.Settle(time.Second)
		c.change(func(d *appsv1.Deployment) { d.Annotations[rollbackAnnotation] = "0" })
		if n := c.Events.Count(); n["DeploymentRollbackRevisionNotFound"] != 1 {
			t.Errorf("events %v", n)
		}
	})
}
