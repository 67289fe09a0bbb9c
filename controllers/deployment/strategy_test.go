package deployment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

// Recreate creates no new pod while an old one terminates.
func TestRecreateWaitsForOldPods(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(2, recreating))
		apitest.Settle(time.Second)
		for _, p := range c.pods() { // only bound pods are deleted gracefully
			apitest.Change(c.API, p, "binding", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		}
		c.ready(-1)
		c.image("v2")
		c.want("old ones terminate", "v1=0")
		if s := c.web().Status; s.Replicas != 0 || *s.TerminatingReplicas != 2 || s.UpdatedReplicas != 0 {
			t.Errorf("status %+v", s)
		}
		old := apitest.List[*corev1.Pod](c.API, "default")
		finish(c, old[0])
		c.want("one old pod has ended", "v1=0")
		c.Phase(old[1], corev1.PodSucceeded, false) // the pod has ended, its object remains
		apitest.Settle(time.Second)
		c.want("both old pods have ended", "v1=0 v2=2")
		c.ready(-1)
		c.wantProgress("ready", "True NewReplicaSetAvailable")
		if c.web().Annotations[revisionAnnotation] != "2" {
			t.Errorf("annotations %v", c.web().Annotations)
		}
		c.scale(3)
		c.want("scaled", "v1=0 v2=3")
	})
}

// finish ends the deletion of a pod, as its node does.
func finish(c cluster, p *corev1.Pod) {
	c.t.Helper()
	c.EndPod(p)
	apitest.Settle(time.Second)
}

// A paused Deployment does not roll out, and is scaled proportionally; the pause does not count towards the deadline.
func TestPaused(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(10, rolling("3", "2"), func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = new(int32(60)) }))
		apitest.Settle(time.Second)
		c.ready(-1)
		c.image("v2")
		c.want("rolling", "v1=8 v2=5")
		c.change(func(d *appsv1.Deployment) { d.Spec.Paused = true })
		c.wantProgress("paused", "Unknown DeploymentPaused")
		c.ready(-1)
		c.want("paused", "v1=8 v2=5")
		c.scale(20)
		c.want("scaled up", "v1=14 v2=9")
		c.scale(10)
		c.want("and down", "v1=8 v2=5")
		if c.set("v1").Annotations[desiredReplicasAnnotation] != "10" ||
			c.set("v2").Annotations[maxReplicasAnnotation] != "13" {
			t.Errorf("annotations %v %v", c.set("v1").Annotations, c.set("v2").Annotations)
		}
		c.change(func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32(0)) })
		c.image("v3")
		c.want("a template waits, and old ones with pods stay", "v1=8 v2=5")
		if s := c.web().Status; s.UpdatedReplicas != 0 || s.Replicas != 13 || s.ObservedGeneration != c.web().Generation {
			t.Errorf("status %+v", s)
		}
		apitest.Settle(time.Hour)
		c.wantProgress("an hour later", "Unknown DeploymentPaused")
		before := c.Store.Revision()
		apitest.Settle(time.Hour)
		if after := c.Store.Revision(); after != before {
			t.Errorf("%d writes while it is paused", after-before)
		}
		c.change(func(d *appsv1.Deployment) { d.Spec.Paused = false })
		c.ready(-1)
		c.want("resumed", "v3=10")
		c.wantProgress("resumed", "True NewReplicaSetAvailable")
	})
}

// A Deployment that is created paused creates no ReplicaSet. Scaling a paused one scales its ReplicaSet.
func TestCreatedPaused(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(3, func(d *appsv1.Deployment) { d.Spec.Paused = true }))
		apitest.Settle(time.Second)
		c.want("paused", "")
		c.change(func(d *appsv1.Deployment) { d.Spec.Paused = false })
		c.ready(-1)
		c.wantProgress("resumed", "True NewReplicaSetAvailable")
		c.change(func(d *appsv1.Deployment) { d.Spec.Paused = true })
		c.scale(0)
		c.want("paused, to nothing", "v1=0")
		c.scale(2)
		c.want("and back", "v1=2")
	})
}

// Scaling up a Deployment during a rollout scales all ReplicaSets; then the rollout continues.
func TestScaledDuringRollout(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(10, rolling("3", "2")))
		apitest.Settle(time.Second)
		c.ready(-1)
		c.image("v2")
		c.want("rolling", "v1=8 v2=5")
		c.scale(20) // 8 and 5 of 13 become 14 and 9 of 23; the added pods are not available
		c.want("scaled", "v1=14 v2=9")
		c.ready(-1)
		c.want("rolled out", "v1=0 v2=20")
		if s := c.web().Status; !complete(c.web(), &s) {
			t.Errorf("status %+v", s)
		}
	})
}

func TestProgressDeadline(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(4, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = new(int32(60)) }))
		apitest.Settle(time.Second)
		c.ready(-1)
		c.image("v2")
		apitest.Settle(50 * time.Second)
		c.ready(1)
		apitest.Settle(55 * time.Second)
		c.wantProgress("a pod became ready 55 s ago", "True ReplicaSetUpdated")
		apitest.Settle(10 * time.Second)
		c.wantProgress("65 s ago", "False ProgressDeadlineExceeded")
		if got := conditionOf(&c.web().Status, appsv1.DeploymentProgressing).Message; got != fmt.Sprintf(
			"ReplicaSet %q has timed out progressing.", c.set("v2").Name) {
			t.Errorf("message %q", got)
		}
		if got := c.condition(appsv1.DeploymentAvailable); got != "True MinimumReplicasAvailable" {
			t.Errorf("Available is %q", got)
		}
		before := c.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if after := c.Store.Revision(); after != before {
			t.Errorf("%d writes after the deadline", after-before)
		}
		c.change(func(d *appsv1.Deployment) { d.Spec.Paused = true })
		c.wantProgress("paused later", "False ProgressDeadlineExceeded")
		c.change(func(d *appsv1.Deployment) { d.Spec.Paused = false })
		c.ready(1)
		c.wantProgress("it goes on", "True ReplicaSetUpdated")
		c.ready(-1)
		c.wantProgress("rolled out", "True NewReplicaSetAvailable")

		// Pods that fail after a rollout do not affect its progress.
		for _, p := range c.pods() {
			c.Phase(p, corev1.PodRunning, false)
		}
		apitest.Settle(time.Hour)
		c.wantProgress("an hour after the pods failed", "True NewReplicaSetAvailable")
		if got := c.condition(appsv1.DeploymentAvailable); got != "False MinimumReplicasUnavailable" {
			t.Errorf("Available is %q", got)
		}
		c.change(func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = new(int32(1<<31 - 1)) })
		c.wantProgress("without a deadline", "")
	})
}

// A ReplicaSet that cannot create pods sets the Deployment's condition ReplicaFailure.
func TestReplicaFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		var down atomic.Bool
		down.Store(true)
		real := api.Client
		api.Client = &apitest.Faulty{Client: real, On: down.Load}
		start(t, api, real)
		c := cluster{api, t}
		c.Create(web(2))
		apitest.Settle(time.Second)
		if got := c.condition(appsv1.DeploymentReplicaFailure); got != "True FailedCreate" {
			t.Errorf("ReplicaFailure is %q", got)
		}
		down.Store(false)
		apitest.Settle(time.Minute)
		c.ready(-1)
		if got := c.condition(appsv1.DeploymentReplicaFailure); got != "" {
			t.Errorf("ReplicaFailure is %q", got)
		}
		c.wantProgress("after the fault", "True NewReplicaSetAvailable")
	})
}

// noReplicaSets is a client that fails to create ReplicaSets while an error is set.
type noReplicaSets struct {
	client.Client
	err *atomic.Pointer[error]
}

func (n noReplicaSets) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	if _, ok := obj.(*appsv1.ReplicaSet); ok && n.err.Load() != nil {
		return nil, *n.err.Load()
	}
	return n.Client.Create(ctx, obj)
}

func TestReplicaSetThatCannotBeCreated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		fault := new(atomic.Pointer[error])
		ends := apierrors.NewForbidden(client.ReplicaSets.GroupResource(), "web", errors.New("the namespace ends"))
		ends.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		fault.Store(new(error(ends)))
		start(t, api, noReplicaSets{api.Client, fault})
		c := cluster{api, t}
		c.Create(web(2))
		apitest.Settle(time.Hour)
		c.wantProgress("the namespace ends", "")
		if events := c.Events.Count(); len(events) != 0 {
			t.Errorf("events %v", events)
		}
		fault.Store(new(errors.New("exceeded quota")))
		c.scale(3)
		c.wantProgress("refused", "False ReplicaSetCreateError")
		if got := conditionOf(&c.web().Status, appsv1.DeploymentProgressing).Message; !strings.HasPrefix(got,
			`Failed to create new replica set "web-`) || !strings.HasSuffix(got, `": exceeded quota`) {
			t.Errorf("message %q", got)
		}
		if c.Events.Count()[reasonCreateError] == 0 {
			t.Error("no event")
		}
		fault.Store(nil)
		apitest.Settle(time.Minute)
		c.ready(-1)
		c.want("after the fault", "v1=3")
		c.wantProgress("after the fault", "True NewReplicaSetAvailable")
	})
}

// If another ReplicaSet has the name, the next hash is used.
func TestCollision(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		d := web(1)
		c.Create(web(0, func(d *appsv1.Deployment) { d.Spec.Paused = true }))
		apitest.Settle(time.Second)
		rs, err := newReplicaSet(c.web())
		if err != nil {
			t.Fatal(err)
		}
		// The selector does not match, so the ReplicaSet is not adopted.
		rs.Labels, rs.Spec.Replicas = map[string]string{"app": "alien"}, new(int32(0))
		taken := rs.Name
		c.Create(rs)
		c.change(func(cur *appsv1.Deployment) { cur.Spec.Paused, cur.Spec.Replicas = false, d.Spec.Replicas })
		c.ready(-1)
		c.want("in addition to the other one", "v1=0 v1=1")
		if n := c.web().Status.CollisionCount; n == nil || *n != 1 {
			t.Errorf("collisionCount %v", n)
		}
		for _, rs := range apitest.List[*appsv1.ReplicaSet](c.API, "default") {
			if mine := metav1.IsControlledBy(rs, c.web()); mine == (rs.Name == taken) {
				t.Errorf("%s: controlled by the Deployment: %v", rs.Name, mine)
			}
		}
		c.wantProgress("rolled out", "True NewReplicaSetAvailable")
	})
}

func TestCleanUp(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(1, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32(2)) }))
		apitest.Settle(time.Second)
		for _, image := range []string{"v2", "v3", "v1", "v4"} {
			c.ready(-1)
			c.image(image)
		}
		c.want("during the rollout all stay", "v1=1 v2=0 v3=0 v4=1")
		c.ready(-1)
		c.want("the lowest revision goes", "v1=0 v3=0 v4=1")
		c.change(func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32(0)) })
		c.want("no history", "v4=1")
		if c.web().Annotations[revisionAnnotation] != "5" {
			t.Errorf("annotations %v", c.web().Annotations)
		}
		c.image("v5")
		c.ready(-1)
		c.want("nothing stays", "v5=1")
		if c.web().Annotations[revisionAnnotation] != "6" {
			t.Errorf("annotations %v", c.web().Annotations)
		}
	})
}

// Matching ReplicaSets are adopted, the one with the template as the new ReplicaSet. Those that lose the label are
// released.
func TestAdoptsAndReleases(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]schema.GroupVersionResource{"in order": {}, "ReplicaSets late": client.ReplicaSets,
		"Deployments late": client.Deployments} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Events.Watch()
				start(t, api, apitest.Lagging{Client: api.Client, Resource: late, By: 300 * time.Millisecond})
				adoptsAndReleases(t, cluster{api, t})
			})
		})
	}
}

func adoptsAndReleases(t *testing.T, c cluster) {
	orphan, err := newReplicaSet(web(1))
	if err != nil {
		t.Fatal(err)
	}
	orphan.Name, orphan.Spec.Replicas = "orphan", new(int32(2))
	old := orphan.DeepCopy()
	old.Name, old.Spec.Template.Spec.Containers[0].Image = "old", "v0"
	for _, rs := range []*appsv1.ReplicaSet{orphan, old} {
		rs.Labels["pod-template-hash"], rs.Spec.Selector.MatchLabels["pod-template-hash"],
			rs.Spec.Template.Labels["pod-template-hash"] = rs.Name, rs.Name, rs.Name
	}
	c.Create(orphan, old)
	apitest.Settle(2 * time.Second)
	c.ready(-1)
	c.Create(web(2, func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 5 }))
	apitest.Settle(time.Minute)
	c.ready(-1)
	apitest.Settle(time.Minute)
	c.want("adopted", "v0=0 v1=2")
	set := c.set("v1")
	if set.Name != "orphan" || !metav1.IsControlledBy(set, c.web()) || set.Spec.MinReadySeconds != 5 ||
		set.Annotations[revisionAnnotation] != "1" || !metav1.IsControlledBy(c.set("v0"), c.web()) {
		t.Errorf("%+v, minReadySeconds %d", set.ObjectMeta, set.Spec.MinReadySeconds)
	}
	apitest.Change(c.API, set, "", func(rs *appsv1.ReplicaSet) { rs.Labels["app"] = "debug" })
	apitest.Settle(time.Minute)
	c.ready(-1)
	released, ok := apitest.Get[*appsv1.ReplicaSet](c.API, "default", "orphan")
	if !ok || len(released.OwnerReferences) != 0 {
		t.Errorf("not released: %v", released.OwnerReferences)
	}
	c.want("another one in its place", "v0=0 v1=2 v1=2")
	apitest.Settle(time.Hour)
	apitest.Change(c.API, released, "", func(rs *appsv1.ReplicaSet) { rs.Labels["app"] = "web" })
	apitest.Settle(time.Minute)
	c.ready(-1)
	apitest.Settle(time.Minute)
	c.want("taken back, as the oldest of its template", "v0=0 v1=0 v1=2")
}

// A pod is available when it has been ready for minReadySeconds; old pods are not deleted before.
func TestMinReadySeconds(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(1, func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 30 }))
		apitest.Settle(time.Second)
		c.ready(-1)
		apitest.Settle(time.Minute)
		c.wantProgress("ready", "True NewReplicaSetAvailable")
		c.image("v2")
		c.ready(-1)
		apitest.Settle(20 * time.Second)
		c.want("after 20 s", "v1=1 v2=1")
		if s := c.web().Status; s.ReadyReplicas != 2 || s.AvailableReplicas != 1 {
			t.Errorf("status %+v", s)
		}
		apitest.Settle(20 * time.Second)
		c.want("after 40 s", "v1=0 v2=1")
	})
}

// The new ReplicaSet gets the annotations and minReadySeconds of the Deployment. The controller reverts a user's
// scaling of a ReplicaSet.
func TestReplicaSetFollows(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(2))
		apitest.Settle(time.Second)
		c.ready(-1)
		c.change(func(d *appsv1.Deployment) { d.Annotations["kubernetes.io/change-cause"] = "mine" })
		if got := c.set("v1").Annotations; got["kubernetes.io/change-cause"] != "mine" || got[historyAnnotation] != "" {
			t.Errorf("annotations %v", got)
		}
		c.change(func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 7 })
		if got := c.set("v1").Spec.MinReadySeconds; got != 7 {
			t.Errorf("minReadySeconds %d", got)
		}
		if d := c.web(); d.Status.ObservedGeneration != d.Generation {
			t.Errorf("generation %d, observed %d", d.Generation, d.Status.ObservedGeneration)
		}
		for _, n := range []int32{7, 0} {
			apitest.Change(c.API, c.set("v1"), "", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
			apitest.Settle(time.Second)
			c.want("scaled by hand", "v1=2")
		}
		c.Delete(c.set("v1"), metav1.DeletePropagationBackground)
		apitest.Settle(time.Second)
		c.want("deleted by hand", "v1=2")
	})
}

// The controller ignores a Deployment that is being deleted.
func TestDeleted(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(2))
		apitest.Settle(time.Second)
		c.ready(-1)
		c.Delete(c.web(), metav1.DeletePropagationForeground) // no garbage collector runs here
		c.image("v2")
		c.want("nothing is rolled out", "v1=2")
		if d := c.web(); d.Status.ObservedGeneration != d.Generation {
			t.Errorf("generation %d, observed %d", d.Generation, d.Status.ObservedGeneration)
		}
	})
}

// A change of a ReplicaSet based on an outdated spec fails with a conflict.
func TestConcurrentChangeIsKept(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(web(2))
		apitest.Settle(time.Second)
		seen := c.set("v1")
		apitest.Change(c.API, seen, "", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = new(int32(7)) })
		r := &run{Controller: New(c.Deps(), &c.Events, Config{})}
		if _, err := r.change(t.Context(), seen, func(*appsv1.ReplicaSet) { t.Error("changed") }); !apierrors.IsConflict(
			err) {
			t.Errorf("got %v", err)
		}
	})
}

// report updates the status of a ReplicaSet: the observed generation, replicas and available replicas.
func (c cluster) report(image string, replicas, available int32) {
	c.t.Helper()
	apitest.Change(c.API, c.set(image), "status", func(rs *appsv1.ReplicaSet) {
		rs.Status = appsv1.ReplicaSetStatus{ObservedGeneration: rs.Generation, Replicas: replicas, ReadyReplicas: available,
			AvailableReplicas: available}
	})
	apitest.Settle(time.Second)
}

// The controller waits for the status of the ReplicaSets before each step. No controller of ReplicaSets runs here.
func TestWaitsForReports(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(c cluster){
		"Recreate": func(c cluster) {
			c.Create(web(2, recreating))
			apitest.Settle(time.Second)
			c.image("v2")
			c.want("old pods may still be created", "v1=0")
			c.report("v1", 0, 0)
			c.want("no old pods are left", "v1=0 v2=2")
		},
		"rolled over": func(c cluster) {
			c.Create(web(4, rolling("1", "1")))
			apitest.Settle(time.Second)
			c.image("v2")
			c.want("old pods may still be created", "v1=3 v2=0")
			c.report("v1", 4, 0)
			c.want("one is not deleted yet", "v1=3 v2=1")
			c.report("v1", 3, 0)
			c.want("three are left", "v1=3 v2=2")
			c.report("v2", 2, 2)
			c.want("new ones are available", "v1=1 v2=2")
			c.report("v1", 1, 0)
			c.want("one is left", "v1=1 v2=4")
		},
		"scaled": func(c cluster) {
			c.Create(web(10, rolling("3", "2")))
			apitest.Settle(time.Second)
			c.report("v1", 10, 10)
			c.image("v2")
			c.report("v1", 8, 8)
			c.want("rolling", "v1=8 v2=5")
			c.scale(20)
			c.want("the status has not observed the last size", "v1=8 v2=5")
			c.report("v2", 5, 0)
			c.want("scaled proportionally", "v1=14 v2=9")
		},
		"scaled with remaining old pods": func(c cluster) {
			c.Create(web(2, rolling("1", "0")))
			apitest.Settle(time.Second)
			c.report("v1", 2, 2)
			c.image("v2")
			c.report("v2", 1, 1)
			c.report("v1", 1, 1)
			c.report("v2", 2, 2)
			c.want("rolled out", "v1=0 v2=2")
			c.report("v1", 2, 0)
			c.scale(4)
			c.want("two old pods are left, five may exist", "v1=0 v2=3")
			c.report("v1", 0, 0)
			c.report("v2", 3, 3)
			c.want("no old pods are left", "v1=0 v2=4")
		},
		"paused and complete": func(c cluster) {
			c.Create(web(4, rolling("2", "0")))
			apitest.Settle(time.Second)
			c.report("v1", 4, 4)
			c.image("v2")
			c.report("v2", 2, 2)
			c.report("v1", 2, 2)
			c.want("rolling", "v1=2 v2=4")
			c.change(func(d *appsv1.Deployment) { d.Spec.Paused = true })
			c.want("paused", "v1=2 v2=4")
			c.report("v2", 4, 4)
			c.want("all new ones are available", "v1=0 v2=4")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Events.Watch()
				api.Run(New(api.Deps(), &api.Events, Config{}))
				test(cluster{api, t})
			})
		})
	}
}
