package deployment

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
	"monopod/controllers/replicaset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// web is a Deployment with upstream's defaults: maxSurge and maxUnavailable 25 %, progressDeadlineSeconds 600.
func web(n int32, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			},
		},
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func recreating(d *appsv1.Deployment) {
	d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
}

func rolling(surge, unavailable string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		s, u := intstr.Parse(surge), intstr.Parse(unavailable)
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &s, MaxUnavailable: &u}}
	}
}

// cluster is an API with the controllers of Deployments and ReplicaSets.
type cluster struct {
	*apitest.API
	t *testing.T
}

// within runs a test in virtual time against running controllers.
func within(t *testing.T, test func(t *testing.T, c cluster)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		start(t, api, api.Client)
		test(t, cluster{api, t})
	})
}

// start runs the controllers, the one for Deployments on c.
func start(t *testing.T, api *apitest.API, c client.Client) {
	deps := api.Deps()
	sets, err := replicaset.New(deps, &apitest.Events{}, replicaset.Config{})
	if err != nil {
		t.Fatal(err)
	}
	api.Run(sets)
	deps.Client = c
	api.Run(New(deps, &api.Events, Config{}))
}

func (c cluster) web() *appsv1.Deployment {
	c.t.Helper()
	return apitest.Existing[*appsv1.Deployment](c.API, "default", "web")
}

func (c cluster) change(f func(*appsv1.Deployment)) {
	c.t.Helper()
	apitest.Change(c.API, web(0), "", f)
	apitest.Settle(time.Second)
}

func (c cluster) image(name string) {
	c.t.Helper()
	c.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = name })
}

func (c cluster) scale(n int32) {
	c.t.Helper()
	c.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &n })
}

// pods returns the pods that are not being deleted.
func (c cluster) pods() []*corev1.Pod {
	return slices.DeleteFunc(apitest.List[*corev1.Pod](c.API, "default"),
		func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// ready makes n unready pods ready. With -1 it makes all pods ready, also those that the controllers create meanwhile.
func (c cluster) ready(n int) {
	c.t.Helper()
	for again := true; again; {
		again = false
		for _, p := range c.pods() {
			if p.Status.Phase == corev1.PodRunning || n == 0 {
				continue
			}
			_, err := client.Update(c.t.Context(), c.Client, p, "status", func(p *corev1.Pod) error {
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.Now()}}
				return nil
			})
			if err != nil && !apierrors.IsNotFound(err) { // the controllers may have deleted the pod
				c.t.Fatal(err)
			}
			again, n = n < 0, n-1
		}
		apitest.Settle(time.Second)
	}
}

// sets formats the replicas of each ReplicaSet by image, sorted by image: "v1=3 v2=1".
func (c cluster) sets() string {
	var out []string
	for _, rs := range apitest.List[*appsv1.ReplicaSet](c.API, "default") {
		out = append(out, fmt.Sprintf("%s=%d", rs.Spec.Template.Spec.Containers[0].Image, *rs.Spec.Replicas))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// set returns the ReplicaSet of an image.
func (c cluster) set(image string) *appsv1.ReplicaSet {
	c.t.Helper()
	for _, rs := range apitest.List[*appsv1.ReplicaSet](c.API, "default") {
		if rs.Spec.Template.Spec.Containers[0].Image == image {
			return rs
		}
	}
	c.t.Fatalf("no ReplicaSet of %s", image)
	return nil
}

func (c cluster) want(what, want string) {
	c.t.Helper()
	if got := c.sets(); got != want {
		c.t.Fatalf("%s: ReplicaSets %q, want %q", what, got, want)
	}
}

// condition returns a condition of the Deployment as "True Reason".
func (c cluster) condition(typ appsv1.DeploymentConditionType) string {
	c.t.Helper()
	if found := conditionOf(&c.web().Status, typ); found != nil {
		return string(found.Status) + " " + found.Reason
	}
	return ""
}

func (c cluster) wantProgress(what, want string) {
	c.t.Helper()
	if got := c.condition(appsv1.DeploymentProgressing); got != want {
		c.t.Errorf("%s: Progressing is %q, want %q", what, got, want)
	}
}

func TestRollingUpdate(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(4))
		apitest.Settle(time.Second)
		c.want("created", "v1=4")
		c.wantProgress("created", "True ReplicaSetUpdated")
		c.ready(-1)
		first := c.set("v1")
		hash := first.Labels["pod-template-hash"]
		if first.Name != "web-"+hash || first.Spec.Selector.MatchLabels["pod-template-hash"] != hash ||
			c.pods()[0].Labels["pod-template-hash"] != hash || !metav1.IsControlledBy(first, c.web()) {
			t.Errorf("the first ReplicaSet is %+v", first.ObjectMeta)
		}
		c.wantProgress("ready", "True NewReplicaSetAvailable")
		if got := conditionOf(&c.web().Status, appsv1.DeploymentProgressing).Message; got != fmt.Sprintf(
			"ReplicaSet %q has successfully progressed.", first.Name) {
			t.Errorf("message %q", got)
		}
		s := c.web().Status
		if s.Replicas != 4 || s.UpdatedReplicas != 4 || s.ReadyReplicas != 4 || s.AvailableReplicas != 4 ||
			s.UnavailableReplicas != 0 || s.ObservedGeneration != 1 || *s.TerminatingReplicas != 0 {
			t.Errorf("status %+v", s)
		}

		c.image("v2")
		c.want("one more, one less", "v1=3 v2=2")
		s = c.web().Status
		if s.Replicas != 5 || s.UpdatedReplicas != 2 || s.AvailableReplicas != 3 || s.UnavailableReplicas != 2 ||
			s.ObservedGeneration != 2 {
			t.Errorf("status %+v", s)
		}
		c.ready(1)
		c.want("one new is available", "v1=2 v2=3")
		c.ready(-1)
		c.want("all are", "v1=0 v2=4")
		c.wantProgress("rolled out", "True NewReplicaSetAvailable")
		if d := c.web(); d.Annotations[revisionAnnotation] != "2" || c.set("v2").Annotations[revisionAnnotation] != "2" ||
			d.Generation != 2 {
			t.Errorf("revision %v, generation %d", d.Annotations, d.Generation)
		}

		c.image("v1") // as kubectl rollout undo does
		c.ready(-1)
		c.want("undone", "v1=4 v2=0")
		back := c.set("v1")
		if back.UID != first.UID || back.Annotations[revisionAnnotation] != "3" ||
			back.Annotations[historyAnnotation] != "1" || c.web().Annotations[revisionAnnotation] != "3" {
			t.Errorf("annotations %v", back.Annotations)
		}
		if n := c.Events.Count()["ScalingReplicaSet"]; n < 8 {
			t.Errorf("%d events", n)
		}
	})
}

func TestIdleWritesNothing(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(3))
		apitest.Settle(time.Second)
		c.ready(-1)
		before := c.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if after := c.Store.Revision(); after != before {
			t.Errorf("%d writes in an idle day", after-before)
		}
	})
}
