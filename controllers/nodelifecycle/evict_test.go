package nodelifecycle

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

// defaults are upstream's default rates.
var defaults = Rates{Eviction: 0.1, Secondary: 0.01, Unhealthy: 0.55, Large: 50}

// TestRates tests the rate of a zone with the given numbers of ready and unready nodes.
func TestRates(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ready, unready int
		want           float64
	}{
		"no node":                          {0, 0, 0.1},
		"all ready":                        {5, 0, 0.1},
		"one of two":                       {1, 1, 0.1},
		"two of three are too few":         {1, 2, 0.1},
		"three of five":                    {2, 3, 0},
		"three of six are below the share": {3, 3, 0.1},
		"55 % of 20":                       {9, 11, 0},
		"50 nodes are not a large zone":    {20, 30, 0},
		"51 nodes are a large zone":        {20, 31, 0.01},
		"all nodes of a zone":              {0, 60, 0.1},
	} {
		if got := defaults.rate(defaults.disruptionOf(tc.ready, tc.unready), tc.ready+tc.unready); got != tc.want {
			t.Errorf("%s: %v a second, want %v", name, got, tc.want)
		}
	}
}

// fleet is a cluster with a running controller, and nodes with a ready pod each.
type fleet struct{ *apitest.API }

func newFleet(t *testing.T, zones ...string) fleet {
	f := fleet{apitest.New(t)}
	f.Events.Watch()
	f.Run(New(f.Deps(), &f.Events, Config{GracePeriod: 10000 * time.Hour, Rates: defaults}))
	for i, zone := range zones {
		n := apitest.Node(fmt.Sprint("n", i))
		n.Labels = map[string]string{corev1.LabelTopologyZone: strings.TrimSuffix(zone, "!")}
		if strings.HasSuffix(zone, "!") {
			n.Labels[excludeDisruption] = ""
		}
		f.Create(n)
		f.Ready(n.Name, corev1.ConditionTrue)
	}
	synctest.Wait()
	return f
}

// set sets the nodes' Ready status, and returns the taints of all nodes a second later.
func (f fleet) set(status corev1.ConditionStatus, nodes ...int) string {
	for _, i := range nodes {
		f.Ready(fmt.Sprint("n", i), status)
	}
	return f.after(time.Second)
}

// after returns the NoExecute taints after d, a letter for each node: - none, n not ready, u unreachable.
func (f fleet) after(d time.Duration) string {
	apitest.Settle(d)
	out := ""
	for _, n := range apitest.List[*corev1.Node](f.API, "") {
		letter := "-"
		for _, t := range n.Spec.Taints {
			if evicts(t) {
				if t.TimeAdded == nil || letter != "-" {
					f.T.Errorf("taints %v", n.Spec.Taints)
				}
				letter = strings.TrimPrefix(t.Key, "node.kubernetes.io/")[:1]
			}
		}
		out += letter
	}
	return out
}

func TestNoExecuteTaints(t *testing.T) {
	t.Parallel()
	const no, yes, unknown = corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown
	type step struct {
		status corev1.ConditionStatus // empty: no change
		nodes  []int
		after  time.Duration
		want   string
	}
	for name, tc := range map[string]struct {
		zones []string
		steps []step
	}{
		"a single node is never tainted": {[]string{"a"}, []step{{unknown, []int{0}, time.Hour, "-"},
			{no, []int{0}, time.Hour, "-"}}},
		"one of two": {[]string{"a", "a"}, []step{
			{unknown, []int{1}, 0, "-u"},
			{no, []int{1}, 0, "-n"}, // the taint is replaced without a delay
			{unknown, []int{1}, 0, "-u"},
			{yes, []int{1}, 0, "--"},
			{no, []int{1}, 10 * time.Second, "-n"},
		}},
		"one after the other": {[]string{"a", "a", "a", "a", "a"}, []step{
			{unknown, []int{3, 4}, 0, "---u-"},
			{"", nil, 7 * time.Second, "---u-"},
			{"", nil, 2 * time.Second, "---uu"},
		}},
		"each zone has a rate": {[]string{"a", "b", "c"}, []step{{unknown, []int{0, 1}, 0, "uu-"}}},
		"a small zone in which most nodes fail": {[]string{"a", "a", "a", "a", "a"}, []step{
			{unknown, []int{2}, 0, "--u--"},
			{unknown, []int{3, 4}, time.Hour, "--u--"},
			{yes, []int{4}, 0, "--uu-"}, // two failed nodes are less than the unhealthy share again
		}},
		"all nodes fail, one recovers": {[]string{"a", "a"}, []step{
			{unknown, []int{1}, 0, "-u"},
			{unknown, []int{0}, time.Hour, "--"},
			{yes, []int{0}, 0, "-u"},
		}},
		"all nodes of one zone fail": {[]string{"a", "a", "b"}, []step{{unknown, []int{0, 1}, 0, "u--"},
			{"", nil, 10 * time.Second, "uu-"}}},
		"excluded nodes": {[]string{"a", "a!", "a!", "a!", "a"}, []step{
			{unknown, []int{1, 2, 3}, 0, "-u---"},
			{"", nil, 20 * time.Second, "-uuu-"},
		}},
		"only excluded nodes are ready": {[]string{"a", "a!"}, []step{{unknown, []int{0}, time.Hour, "--"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, tc.zones...)
				apitest.Settle(time.Minute)
				for i, s := range tc.steps {
					got := f.set(s.status, s.nodes...)
					if s.after > 0 {
						got = f.after(s.after)
					}
					if got != s.want {
						t.Fatalf("step %d: %s, want %s", i, got, s.want)
					}
				}
				before := f.Store.Revision()
				if f.after(24 * time.Hour); f.Store.Revision() != before {
					t.Error("the idle controller wrote")
				}
			})
		})
	}
}

// TestPodsOfSilentNode tests that the ready pods of a node that stops reporting become not ready, once for each failure
// of the node.
func TestPodsOfSilentNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Run(New(api.Deps(), &api.Events, Config{Rates: defaults}))
		api.Create(apitest.Node("n"), apitest.Node("other"))
		for _, name := range []string{"n", "other"} {
			api.Ready(name, corev1.ConditionTrue)
			for _, state := range []string{"ready", "starting"} {
				p := apitest.Pod("default", state+"-"+name, func(p *corev1.Pod) { p.Spec.NodeName = name })
				api.Create(p)
				api.Phase(p, corev1.PodRunning, state == "ready")
			}
		}
		alive := time.Now()
		for time.Since(alive) < 2*time.Minute {
			apitest.Settle(20 * time.Second)
			api.Ready("other", corev1.ConditionTrue)
		}
		for name, want := range map[string]bool{"ready-n": false, "starting-n": false, "ready-other": true,
			"starting-other": false} {
			p := apitest.Existing[*corev1.Pod](api, "default", name)
			if podstate.Ready(p) != want {
				t.Errorf("%s: %+v", name, p.Status.Conditions)
			}
			if changed := podstate.Condition(p, corev1.PodReady).LastTransitionTime.After(alive); changed != (name == "ready-n") {
				t.Errorf("%s: Ready changed at %v", name, podstate.Condition(p, corev1.PodReady).LastTransitionTime)
			}
		}
		// One Event is about the node, one about its ready pod.
		if events := api.Events.Count(); events["NodeNotReady"] != 2 {
			t.Errorf("events %v", events)
		}
		// If a client sets the pod ready again, the controller does not revert it.
		api.Phase(apitest.Pod("default", "ready-n"), corev1.PodRunning, true)
		apitest.Settle(10 * time.Minute)
		if !podstate.Ready(apitest.Existing[*corev1.Pod](api, "default", "ready-n")) {
			t.Error("the controller set the pod not ready again")
		}
		api.Create(lease()) // one heartbeat
		apitest.Settle(40 * time.Second)
		if !podstate.Ready(apitest.Existing[*corev1.Pod](api, "default", "ready-n")) {
			t.Error("the pod is not ready within the grace period")
		}
		apitest.Settle(20 * time.Second)
		if podstate.Ready(apitest.Existing[*corev1.Pod](api, "default", "ready-n")) {
			t.Error("the pod is ready although the node stopped reporting again")
		}
	})
}
