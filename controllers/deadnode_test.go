package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

// deadNode is a cluster of the nodes alive and dead. The node dead stops reporting at lost.
type deadNode struct {
	*apitest.API
	lost time.Time
}

// pass waits until the given time after lost. Meanwhile both nodes renew their leases and run their pods, the node dead
// only until lost.
func (d *deadNode) pass(until time.Duration) {
	for end := d.lost.Add(until); time.Now().Before(end); {
		nodes := []string{"alive"}
		if time.Now().Before(d.lost) {
			nodes = append(nodes, "dead")
		}
		for _, name := range nodes {
			apitest.Change(d.API, lease(name), "", func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NowMicro()) })
		}
		for _, p := range apitest.List[*corev1.Pod](d.API, "default") {
			if !slices.Contains(nodes, p.Spec.NodeName) {
				continue
			}
			if p.DeletionTimestamp != nil {
				d.EndPod(p)
			} else if !podstate.Ready(p) {
				d.Phase(p, corev1.PodRunning, true)
			}
		}
		apitest.Settle(5 * time.Second)
	}
}

func lease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)),
			RenewTime: new(metav1.NowMicro())}}
}

// on counts the pods of an app on a node: all/ready/terminating.
func (d *deadNode) on(app, node string) string {
	all, ready, deleted := 0, 0, 0
	for _, p := range apitest.List[*corev1.Pod](d.API, "default") {
		if p.Labels["app"] != app || p.Spec.NodeName != node {
			continue
		}
		all++
		if podstate.Ready(p) {
			ready++
		}
		if p.DeletionTimestamp != nil {
			deleted++
		}
	}
	return fmt.Sprintf("%d/%d/%d", all, ready, deleted)
}

// TestDeadNode tests that the pods of a node that stops reporting become not ready after 50 s, and are replaced on
// another node 300 s later; pods of a DaemonSet are not, pods of a StatefulSet only when the Node is deleted or out of
// service.
func TestDeadNode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(d *deadNode) // what an administrator does
		left string            // pods of the StatefulSet on the node dead
	}{
		"the Node is deleted": {func(d *deadNode) { d.Delete(apitest.Node("dead"), "") }, "0/0/0"},
		"the Node is out of service": {func(d *deadNode) {
			apitest.Change(d.API, apitest.Node("dead"), "", func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints,
					corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
			})
		}, "0/0/0"},
		"the Node remains": {func(*deadNode) {}, "1/0/1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { nodeDies(t, tc.end, tc.left) })
		})
	}
}

func nodeDies(t *testing.T, end func(*deadNode), left string) {
	d := &deadNode{API: apitest.New(t)}
	m, err := New(Deps{Client: d.Client, Metrics: d.Registry}, served())
	if err != nil {
		t.Fatal(err)
	}
	d.Restarting(func() follow.Controller { return follow.Task("controllers", m.Run) })
	d.lost = time.Now().Add(time.Minute)
	for _, name := range []string{"alive", "dead"} {
		d.Create(apitest.Node(name), lease(name))
		d.Ready(name, corev1.ConditionTrue)
	}
	meta := func(app string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: app} }
	template := func(app string) corev1.PodTemplateSpec {
		t := appTemplate(app)
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname,
			WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
		return t
	}
	selector := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	task := template("task")
	task.Spec.RestartPolicy = corev1.RestartPolicyNever
	d.Create(
		&appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta("web"),
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(4)), Selector: selector("web"), Template: template("web")}},
		&appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}, ObjectMeta: meta("db"),
			Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2)), ServiceName: "db", Selector: selector("db"),
				Template: template("db"), PodManagementPolicy: appsv1.ParallelPodManagement}},
		&appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: meta("agent"),
			Spec: appsv1.DaemonSetSpec{Selector: selector("agent"), Template: appTemplate("agent")}},
		&batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta("task"),
			Spec: batchv1.JobSpec{Completions: new(int32(2)), Parallelism: new(int32(2)), Template: task}},
		&corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta("web"),
			Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "web"},
				Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt(80)}}}},
	)
	expect := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, app := range []string{"web", "db", "agent", "task"} {
			got = append(got, app+" "+d.on(app, "alive")+" "+d.on(app, "dead"))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	d.pass(0)
	expect("before", "web 2/2/0 2/2/0", "db 1/1/0 1/1/0", "agent 1/1/0 1/1/0", "task 1/1/0 1/1/0")
	d.pass(40 * time.Second)
	expect("within the grace period", "web 2/2/0 2/2/0", "db 1/1/0 1/1/0", "agent 1/1/0 1/1/0", "task 1/1/0 1/1/0")
	d.pass(70 * time.Second)
	expect("after the grace period", "web 2/2/0 2/0/0", "db 1/1/0 1/0/0", "agent 1/1/0 1/0/0", "task 1/1/0 1/0/0")
	d.pass(330 * time.Second)
	expect("before the eviction", "web 2/2/0 2/0/0", "db 1/1/0 1/0/0", "agent 1/1/0 1/0/0", "task 1/1/0 1/0/0")
	d.pass(400 * time.Second)
	expect("after the eviction", "web 4/4/0 2/0/2", "db 1/1/0 1/0/1", "agent 1/1/0 1/0/0", "task 2/2/0 1/0/1")
	end(d)
	d.pass(600 * time.Second)
	if got := d.on("db", "dead"); got != left {
		t.Errorf("at the end: pods of db on the node dead: %s, want %s", got, left)
	}
	if got, want := d.on("db", "alive"), map[bool]string{true: "2/2/0", false: "1/1/0"}[left == "0/0/0"]; got != want {
		t.Errorf("at the end: pods of db on the node alive: %s, want %s", got, want)
	}
	if got := d.on("web", "alive"); got != "4/4/0" {
		t.Errorf("at the end: pods of web on the node alive: %s, want 4/4/0", got)
	}
}
