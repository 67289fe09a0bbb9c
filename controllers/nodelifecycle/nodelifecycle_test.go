package nodelifecycle

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("n"), LeaseDurationSeconds: new(int32(40)),
			RenewTime: new(metav1.NowMicro())},
	}
}

// state formats the node's Ready status and its taints.
func state(api *apitest.API) string {
	synctest.Wait()
	n, _ := apitest.Get[*corev1.Node](api, "", "n")
	out := string(podstate.ReadyStatus(n))
	for _, t := range n.Spec.Taints {
		out += " " + t.Key
	}
	return out
}

func TestNodeStopsAndResumesReporting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Run(New(api.Deps(), &api.Events, Config{}))
		api.Create(apitest.Node("n"), lease())
		expect := func(want string) {
			t.Helper()
			if got := state(api); got != want {
				t.Fatalf("state %q, want %q", got, want)
			}
		}
		expect(" node.kubernetes.io/not-ready")
		api.Ready("n", corev1.ConditionTrue)
		expect("True")
		for range 30 {
			apitest.Settle(10 * time.Second)
			apitest.Change(api, lease(), "", func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NowMicro()) })
		}
		expect("True")
		apitest.Settle(45 * time.Second)
		expect("True")
		apitest.Settle(60 * time.Second)
		expect("Unknown node.kubernetes.io/unreachable")
		if events := api.Events.Count(); events["NodeNotReady"] != 1 || events["RegisteredNode"] != 1 {
			t.Errorf("events %v", events)
		}
		before := api.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if api.Store.Revision() != before {
			t.Error("the controller wrote although the node did not change")
		}
		apitest.Change(api, lease(), "", func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NowMicro()) })
		api.Ready("n", corev1.ConditionTrue)
		expect("True")
		apitest.Settle(2 * time.Minute)
		expect("Unknown node.kubernetes.io/unreachable")
		api.Delete(apitest.Node("n"), "")
		synctest.Wait()
		if events := api.Events.Count(); events["RemovingNode"] != 1 {
			t.Errorf("events %v", events)
		}
	})
}

func TestTaintsFollowConditions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), &api.Events, Config{}))
		node := apitest.Node("n")
		node.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoExecute}}
		api.Create(node, lease())
		api.Ready("n", corev1.ConditionTrue)
		for _, step := range []struct {
			condition corev1.NodeConditionType
			status    corev1.ConditionStatus
			want      string
		}{
			{corev1.NodeMemoryPressure, corev1.ConditionFalse, "True mine node.kubernetes.io/disk-pressure"},
			{corev1.NodeMemoryPressure, corev1.ConditionTrue,
				"True mine node.kubernetes.io/disk-pressure node.kubernetes.io/memory-pressure"},
			{corev1.NodePIDPressure, corev1.ConditionTrue,
				"True mine node.kubernetes.io/disk-pressure node.kubernetes.io/memory-pressure node.kubernetes.io/pid-pressure"},
			{corev1.NodeMemoryPressure, corev1.ConditionUnknown,
				"True mine node.kubernetes.io/disk-pressure node.kubernetes.io/pid-pressure"},
		} {
			apitest.Change(api, apitest.Node("n"), "status", func(n *corev1.Node) {
				n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions,
					func(c corev1.NodeCondition) bool { return c.Type == step.condition })
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: step.condition, Status: step.status})
			})
			if got := state(api); got != step.want {
				t.Errorf("%s %s: state %q, want %q", step.condition, step.status, got, step.want)
			}
		}
		apitest.Change(api, apitest.Node("n"), "", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		if got, want := state(
			api), "True mine node.kubernetes.io/disk-pressure node.kubernetes.io/pid-pressure node.kubernetes.io/unschedulable"; got != want {
			t.Errorf("cordoned: state %q, want %q", got, want)
		}
	})
}
