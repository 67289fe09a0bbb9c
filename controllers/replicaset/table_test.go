package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

// cluster is an API with the controller, whose creations and deletions of pods can fail.
type cluster struct {
	*apitest.API
	creations, deletions atomic.Int64 // attempts
	broken               atomic.Pointer[error]
}

// breaking is the client of the controller. It counts creations and deletions, and fails them while broken is set.
type breaking struct {
	client.Client
	c *cluster
}

func (b breaking) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	b.c.creations.Add(1)
	if err := b.c.broken.Load(); err != nil {
		return nil, *err
	}
	return b.Client.Create(ctx, obj)
}

func (b breaking) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	b.c.deletions.Add(1)
	if err := b.c.broken.Load(); err != nil {
		return nil, *err
	}
	return b.Client.Delete(ctx, ref, opts)
}

func (c *cluster) fail(err error) { c.broken.Store(&err) }
func (c *cluster) heal()          { c.broken.Store(nil) }

func newCluster(t *testing.T) *cluster {
	c := &cluster{API: apitest.New(t)}
	c.Events.Watch()
	start(t, c.API, breaking{c.Client, c})
	return c
}

// add creates a running pod with the label app=web on a node; without owner the pod is an orphan.
func (c *cluster) add(name, owner, node string, change ...func(*corev1.Pod)) {
	p := apitest.Pod("default", name, func(p *corev1.Pod) {
		p.Labels, p.Spec.NodeName = map[string]string{"app": "web"}, node
		if owner != "" {
			rs := apitest.Existing[*appsv1.ReplicaSet](c.API, "default", owner)
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs,
				appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		}
	})
	for _, f := range change {
		f(p)
	}
	c.Create(p)
	c.Phase(p, corev1.PodRunning, true)
}

func (c *cluster) set(name string, change func(*appsv1.ReplicaSet)) {
	apitest.Change(c.API, replicaSet(name, 0), "", change)
}

// state formats each ReplicaSet with its pods, and the orphans: - marks a terminating pod, "2 new" counts pods that the
// controller created.
func (c *cluster) state() string {
	owners, names := map[string][]string{}, map[string]string{}
	for _, rs := range apitest.List[*appsv1.ReplicaSet](c.API, "default") {
		owners[rs.Name], names[string(rs.UID)] = nil, rs.Name
	}
	made := map[string]int{}
	for _, p := range pods(c.API) {
		owner := ""
		if ref := metav1.GetControllerOf(p); ref != nil {
			owner = names[string(ref.UID)]
			if owner == "" {
				owner = "other"
			}
		}
		name := p.Name
		if p.DeletionTimestamp != nil {
			name = "-" + name
		}
		if p.GenerateName != "" && p.DeletionTimestamp == nil {
			made[owner]++
			continue
		}
		owners[owner] = append(owners[owner], name)
	}
	for owner, n := range made {
		owners[owner] = append(owners[owner], fmt.Sprintf("%d new", n))
	}
	var out []string
	for owner, pods := range owners {
		slices.Sort(pods)
		out = append(out, owner+"="+strings.Join(pods, ","))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func replicas(n int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n }
}

// sets returns a step that creates ReplicaSets of n pods with the label app=web.
func sets(n int32, names ...string) func(*cluster) {
	return func(c *cluster) {
		for _, name := range names {
			rs := replicaSet(name, n)
			rs.Spec.Selector.MatchLabels["app"], rs.Spec.Template.Labels["app"] = "web", "web"
			c.Create(rs)
		}
	}
}

// TestReplicaSets compares the pods of ReplicaSets after each step.
func TestReplicaSets(t *testing.T) {
	t.Parallel()
	type step struct {
		do   func(c *cluster)
		want string
	}
	relabel := func(pod, app string) func(*cluster) {
		return func(c *cluster) {
			apitest.Change(c.API, apitest.Pod("default", pod), "", func(p *corev1.Pod) { p.Labels["app"] = app })
		}
	}
	add := func(name, owner, node string) func(*cluster) { return func(c *cluster) { c.add(name, owner, node) } }
	scaleTo := func(name string, n int32) func(*cluster) {
		return func(c *cluster) { c.set(name, replicas(n)) }
	}
	forbidden := apierrors.NewForbidden(corev1.Resource("pods"), "", fmt.Errorf("exceeded quota"))
	for name, steps := range map[string][]step{
		"no replicas":            {{sets(0, "a"), "a="}},
		"scaled from 0 and back": {{sets(0, "a"), "a="}, {scaleTo("a", 2), "a=2 new"}, {scaleTo("a", 0), "a="}},
		"an orphan is adopted":   {{add("x", "", ""), "=x"}, {sets(2, "a"), "a=1 new,x"}},
		"a pod of another owner is not adopted": {{func(c *cluster) {
			c.add("x", "", "", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "w",
					Controller: new(true)}}
			})
		}, "other=x"}, {sets(1, "a"), "a=1 new other=x"}},
		"a pod with an owner that is not a controller is adopted": {{func(c *cluster) {
			c.add("x", "", "", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "w"}}
			})
		}, "=x"}, {sets(1, "a"), "a=x"}},
		"two with one selector own separate pods": {{sets(2, "a", "b"), "a=2 new b=2 new"}, {scaleTo("a", 0), "a= b=2 new"}},
		"an orphan that both select has one owner": {{add("x", "", ""), "=x"}, {sets(1, "a"), "a=x"},
			{sets(1, "b"), "a=x b=1 new"}},
		"a pod without the label is released, replaced, and not adopted back": {
			{sets(1, "a"), "a=1 new"},
			{func(c *cluster) {
				apitest.Change(c.API, pods(c.API)[0], "", func(p *corev1.Pod) { p.Labels["app"] = "debug" })
			}, "=1 new a=1 new"},
		},
		"a released pod that gets the label back is surplus": {
			{add("x", "", "n"), "=x"}, {sets(1, "a"), "a=x"}, {relabel("x", "debug"), "=x a=1 new"},
			{relabel("x", "web"), "a=x"}, // the pod without a node is deleted
		},
		"finished pods are replaced and stay": {
			{sets(1, "a"), "a=1 new"}, {func(c *cluster) { c.Phase(pods(c.API)[0], corev1.PodSucceeded, false) }, "a=2 new"},
			{scaleTo("a", 0), "a=1 new"},
		},
		"a finished orphan is not adopted": {
			{func(c *cluster) { c.add("x", "", ""); c.Phase(apitest.Pod("default", "x"), corev1.PodFailed, false) }, "=x"},
			{sets(1, "a"), "=x a=1 new"},
		},
		"a terminating pod is replaced before it has ended": {
			{add("x", "", "n"), "=x"}, {sets(1, "a"), "a=x"}, {func(c *cluster) { c.Delete(apitest.Pod("default", "x"), "") },
				"a=-x,1 new"},
			{func(c *cluster) { c.EndPods("default") }, "a=1 new"},
		},
		"during its foreground deletion it creates, adopts and releases no pods": {
			{add("x", "", "n"), "=x"}, {sets(1, "a"), "a=x"},
			{func(c *cluster) { c.Delete(replicaSet("a", 0), metav1.DeletePropagationForeground) }, "a=x"},
			{add("y", "", "n"), "=y a=x"},
			{func(c *cluster) { c.EndPod(apitest.Pod("default", "x")) }, "=y a="},
			{add("z", "a", "n"), "=y a=z"},
			{relabel("z", "debug"), "=y a=z"},
		},
		"a new one of the same name adopts orphans": {
			{sets(2, "a"), "a=2 new"},
			// no garbage collector runs, so the test orphans the pods itself
			{func(c *cluster) { c.Delete(replicaSet("a", 0), metav1.DeletePropagationOrphan) }, "a=2 new"},
			{func(c *cluster) {
				for _, p := range pods(c.API) {
					apitest.Change(c.API, p, "", func(p *corev1.Pod) { p.OwnerReferences = nil })
				}
				c.set("a", func(rs *appsv1.ReplicaSet) { rs.Finalizers = nil })
			}, "=2 new"},
			{sets(3, "a"), "a=3 new"},
		},
		"failed creations are retried": {
			{func(c *cluster) { c.fail(forbidden) }, ""}, {sets(3, "a"), "a="},
			{func(c *cluster) { c.heal(); apitest.Settle(time.Minute) }, "a=3 new"},
		},
		"failed deletions are retried": {
			{sets(3, "a"), "a=3 new"}, {func(c *cluster) { c.fail(forbidden) }, "a=3 new"}, {scaleTo("a", 1), "a=3 new"},
			{func(c *cluster) { c.heal(); apitest.Settle(time.Minute) }, "a=1 new"},
		},
		// The order of deletion depends also on pods of the Deployment's other ReplicaSets.
		"the pod on the node with most pods of the Deployment is deleted, although it is older": {
			{add("x", "", "n1"), "=x"}, {func(c *cluster) { apitest.Settle(time.Hour) }, "=x"}, {add("y", "", "n2"), "=x,y"},
			{sets(2, "a"), "a=x,y"},
			{func(c *cluster) {
				c.add("z", "", "n1", func(p *corev1.Pod) { p.Labels["app"] = "b" })
				c.Create(replicaSet("b", 1))
			}, "a=x,y b=z"},
			{func(c *cluster) {
				for _, name := range []string{"a", "b"} {
					c.set(name, func(rs *appsv1.ReplicaSet) {
						rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "d",
							Controller: new(true)}}
					})
				}
			}, "a=x,y b=z"}, {scaleTo("a", 1), "a=-x,y b=z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				for i, s := range steps {
					s.do(c)
					apitest.Settle(time.Second)
					if got := c.state(); got != s.want {
						t.Fatalf("step %d: %s, want %s", i+1, got, s.want)
					}
				}
			})
		})
	}
}

// TestFailures counts attempts while creations and deletions fail, and checks the condition ReplicaFailure.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		condition := func(when, reason, message string) {
			t.Helper()
			got := get(t, c.API, "web").Status.Conditions
			if reason == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || got[0].Type != appsv1.ReplicaSetReplicaFailure || got[0].Status != corev1.ConditionTrue ||
				got[0].Reason != reason || got[0].Message != message {
				t.Errorf("%s: %+v", when, got)
			}
			if events := c.Events.Count(); events[reason] == 0 || len(events) != 1 {
				t.Errorf("%s: events %v", when, events)
			}
		}
		c.fail(errors.New("full"))
		c.Create(replicaSet("web", 100))
		synctest.Wait()
		if n := c.creations.Load(); n != 2 {
			t.Errorf("%d attempts to create a pod, want 2: one, and one after the write of the condition", n)
		}
		condition("nothing created", "FailedCreate", "full")
		c.heal()
		apitest.Settle(time.Minute)
		condition("recovered", "", "")
		if n := len(pods(c.API)); n != 100 {
			t.Errorf("%d pods", n)
		}
		c.Events.Count()

		c.fail(errors.New("read only"))
		scale(c.API, "web", 98)
		synctest.Wait()
		condition("nothing deleted", "FailedDelete", "read only\nread only")
		if s := get(t, c.API, "web").Status; s.Replicas != 100 {
			t.Errorf("%d replicas although no pod was deleted", s.Replicas)
		}
		scale(c.API, "web", 101)
		synctest.Wait()
		condition("another failure", "FailedCreate", "read only")
		c.heal()
		apitest.Settle(time.Minute)
		condition("recovered again", "", "")
	})
}

// TestBecomesAvailable tests that each pod becomes available when it has been ready for minReadySeconds.
func TestBecomesAvailable(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		rs := replicaSet("web", 2)
		rs.Spec.MinReadySeconds = 60
		api.Create(rs)
		apitest.Settle(time.Second)
		available := func(when string, want int32) {
			t.Helper()
			synctest.Wait()
			if got := get(t, api, "web").Status.AvailableReplicas; got != want {
				t.Errorf("%s: %d available, want %d", when, got, want)
			}
		}
		first, second := pods(api)[0], pods(api)[1]
		api.Phase(first, corev1.PodRunning, true)
		time.Sleep(20 * time.Second)
		api.Phase(second, corev1.PodRunning, true)
		time.Sleep(39 * time.Second)
		available("59 s", 0)
		time.Sleep(time.Second)
		available("60 s", 1)
		time.Sleep(19 * time.Second)
		available("79 s", 1)
		time.Sleep(time.Second)
		available("80 s", 2)
		minReady := func(n int32) {
			apitest.Change(api, rs, "", func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = n })
		}
		minReady(100)
		available("minReadySeconds 100", 0)
		time.Sleep(20 * time.Second)
		available("100 s", 1)
		minReady(0)
		available("minReadySeconds 0", 2)
		api.Phase(first, corev1.PodRunning, false)
		available("not ready", 1)
	})
}

// A ReplicaSet that replaces another one of the same name creates its own pods, even if the watch of pods is late.
func TestReplacedByItsName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		start(t, api, apitest.Lagging{Client: api.Client, Resource: client.Pods, By: lag})
		api.Create(replicaSet("web", 3))
		synctest.Wait()
		api.Delete(replicaSet("web", 0), metav1.DeletePropagationBackground)
		api.Create(replicaSet("web", 2))
		apitest.Settle(20 * lag)
		owners := map[bool]int{}
		for _, p := range pods(api) {
			owners[metav1.IsControlledBy(p, get(t, api, "web"))]++
		}
		if owners[true] != 2 || owners[false] != 3 {
			t.Errorf("%d pods of the new ReplicaSet, %d of the deleted one, want 2 and 3", owners[true], owners[false])
		}
	})
}
