package deployment

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

// TestRollovers changes a Deployment of 4 replicas whose rollout of v1 is complete, also during the next rollout.
func TestRollovers(t *testing.T) {
	t.Parallel()
	type step struct {
		what string
		do   func(c cluster)
		want string // ReplicaSets
	}
	image := func(name, want string) step {
		return step{"image " + name, func(c cluster) { c.image(name) }, want}
	}
	ready := func(n int, want string) step {
		return step{"pods become ready", func(c cluster) { c.ready(n) }, want}
	}
	change := func(what string, f func(*appsv1.Deployment), want string) step {
		return step{what, func(c cluster) { c.change(f) }, want}
	}
	for name, tc := range map[string]struct {
		strategy func(*appsv1.Deployment)
		steps    []step
	}{
		"a third template takes over from an unfinished one": {rolling("1", "0"), []step{
			image("v2", "v1=4 v2=1"),
			image("v3", "v1=4 v2=0 v3=1"), // the pod of v2 was never ready, so it is deleted first
			ready(-1, "v1=0 v2=0 v3=4"),
		}},
		"back to the first template": {rolling("1", "0"), []step{
			image("v2", "v1=4 v2=1"),
			image("v1", "v1=4 v2=0"),
		}},
		"pods of a broken template go before healthy old ones": {rolling("25%", "50%"), []step{
			image("broken", "broken=3 v1=2"),
			image("v3", "broken=0 v1=2 v3=3"),
			ready(-1, "broken=0 v1=0 v3=4"),
		}},
		"no surge": {rolling("0", "25%"), []step{
			image("v2", "v1=3 v2=1"),
			ready(1, "v1=2 v2=2"),
			ready(-1, "v1=0 v2=4"),
		}},
		"neither surge nor unavailable, by rounding": {rolling("0%", "1%"), []step{
			image("v2", "v1=3 v2=1"), // if both round to 0, maxUnavailable is 1
			ready(-1, "v1=0 v2=4"),
		}},
		"everything at once": {rolling("100%", "100%"), []step{
			image("v2", "v1=0 v2=4"),
		}},
		"Recreate in the middle of a rolling update": {rolling("1", "0"), []step{
			image("v2", "v1=4 v2=1"),
			change("Recreate", func(d *appsv1.Deployment) {
				d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			}, "v1=0 v2=4"), // the old pods have no node, so their deletion is immediate
		}},
		"a rolling update instead of Recreate": {recreating, []step{
			change("RollingUpdate", rolling("1", "0"), "v1=4"),
			image("v2", "v1=4 v2=1"),
			ready(-1, "v1=0 v2=4"),
		}},
		"scaled to zero and back": {rolling("1", "0"), []step{
			change("0", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) }, "v1=0"),
			image("v2", "v1=0 v2=0"),
			change("2", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) }, "v1=0 v2=2"),
		}},
		"scaled down during a stuck rollout": {rolling("2", "0"), []step{
			image("broken", "broken=2 v1=4"),
			change("1", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) }, "broken=1 v1=1"),
			image("v1", "broken=0 v1=1"),
		}},
		"restarted by an annotation of the template, as kubectl rollout restart": {rolling("1", "0"), []step{
			change("restart", func(d *appsv1.Deployment) {
				metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, "kubectl.kubernetes.io/restartedAt", "now")
			}, "v1=1 v1=4"),
			ready(-1, "v1=0 v1=4"),
		}},
		"a label of the Deployment changes nothing": {rolling("1", "0"), []step{
			change("label", func(d *appsv1.Deployment) { d.Labels = map[string]string{"new": "yes"} }, "v1=4"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, c cluster) {
				c.Create(web(4, tc.strategy))
				apitest.Settle(time.Second)
				c.ready(-1)
				c.want("complete", "v1=4")
				for _, s := range tc.steps {
					s.do(c)
					c.want(s.what, s.want)
				}
			})
		})
	}
}
