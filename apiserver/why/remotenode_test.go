package why_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"monopod/apiserver/kit/nodetunnel"
	"monopod/apiserver/why"
)

// farNode is the node p of another machine, whose lease was renewed two minutes ago.
func farNode(ready, more string) string {
	return fmt.Sprintf("kind: Node\nspec: {taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute, "+
		"timeAdded: '2026-01-01T00:09:00Z'}]}\nstatus: {conditions: [{type: Ready, status: %q, message: no heartbeat., "+
		"lastHeartbeatTime: '2026-01-01T00:05:00Z'}]%s}\n---\nkind: Lease\nmetadata: {namespace: kube-node-lease}\n"+
		"spec: {renewTime: '2026-01-01T00:08:00.000000Z'}", ready, more)
}

// onFar is a pod of the node p.
func onFar(name, more string) string {
	return fmt.Sprintf("\n---\nkind: Pod\nmetadata: {name: %s%s}", name, more)
}

// tolerating is a pod that tolerates the taint of the node for some seconds.
func tolerating(name, seconds string) string {
	return onFar(name, "") + "\nspec: {tolerations: [{key: node.kubernetes.io/unreachable, effect: NoExecute" +
		strings.Replace(", tolerationSeconds: N", "N", seconds, 1) + "}]}"
}

func TestNodesOfOtherMachines(t *testing.T) {
	t.Parallel()
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	silent := nodetunnel.State{Since: before(90 * time.Second), From: "192.0.2.7:999", End: "the machine did not answer"}
	left := nodetunnel.State{Since: before(time.Minute), From: "192.0.2.7:999", End: "the machine closed it", Left: true}
	open := nodetunnel.State{Since: before(time.Hour), From: "192.0.2.7:999", Open: true}
	one := tolerating("a", "300")
	forever := strings.Replace(tolerating("always", ""), ", tolerationSeconds: ", "", 1)
	const ended = "and its tunnel to this server ended "
	const unreported = "Node p has not reported for 2m, "
	for name, c := range map[string]struct {
		objects         string
		tunnel          nodetunnel.State
		want, shows, do string // the whole sentence; parts of the others
	}{
		"no answer": {farNode("Unknown", "") + one, silent, unreported + ended +
			"90s ago: the machine did not answer; its pod a is evicted in about 4m, unless it reports again.",
			"last heartbeat: 2026-01-01T00:08:00Z (2m ago)", "Check that the machine is on"},
		"closed": {farNode("Unknown", "") + one + tolerating("b", "300"), left, unreported + ended +
			"60s ago: the machine closed it; its 2 pods are evicted in about 4m, unless it reports again.",
			"tunnel to this server: ended 60s ago, from 192.0.2.7:999: the machine closed it", "Start monopod join"},
		"no pods": {farNode("Unknown", ""), silent, unreported + ended + "90s ago: the machine did not answer.",
			"last heartbeat", "kubectl delete node p"},
		"different times": {farNode("Unknown", "") + one + tolerating("b", "120") + forever, silent, unreported + ended +
			"90s ago: the machine did not answer; 2 of its 3 pods are evicted one after the other, the first in about 60s, " +
			"unless it reports again.", "pod default/always stays, because it tolerates node.kubernetes.io/unreachable", "on"},
		"one of two": {farNode("Unknown", "") + one + onFar("b", ", deletionTimestamp: '2026-01-01T00:09:00Z'"), silent,
			unreported + ended + "90s ago: the machine did not answer; 1 of its 2 pods is evicted in about 4m, " +
				"unless it reports again.", "pod default/b is terminating until the node reports", "on"},
		"no toleration": {farNode("Unknown", "") + onFar("b", ""), silent, unreported + ended +
			"90s ago: the machine did not answer; its pod b is evicted now, unless it reports again.", "evicted", "on"},
		"only pods that stay": {farNode("Unknown", "") + forever, silent, unreported + ended +
			"90s ago: the machine did not answer.", "pod default/always stays", "on"},
		"many pods": {farNode("Unknown", "") + tolerating("b", "9223372036854775807") + strings.Repeat(one, 7), silent,
			unreported + ended + "90s ago: the machine did not answer; its 8 pods are evicted one after the other, " +
				"the first in about 4m, unless it reports again.", "and 2 more pods", "on"},
		"connected": {farNode("Unknown", ""), open, unreported + "although its tunnel to this server is open.",
			"tunnel to this server: open for 60m, from 192.0.2.7:999", "it does not renew its lease"},
		"never connected": {farNode("Unknown", ""), nodetunnel.State{},
			unreported + "and has opened no tunnel to this server since the server started.",
			"tunnel to this server: none since the server started", "monopod join runs there"},
		"a kubelet with a port": {farNode("Unknown", ", daemonEndpoints: {kubeletEndpoint: {Port: 10250}}") + one,
			nodetunnel.State{}, "Node p has not reported for 2m; its pod a is evicted in about 4m, unless it reports again.",
			"last heartbeat", "that its kubelet runs"},
		"not ready": {farNode("False", "") + one, open,
			"Node p is not ready: no heartbeat; its pod a is evicted in about 4m, unless it becomes ready.",
			"tunnel to this server: open", "the log of monopod on that machine"},
		"ready": {farNode("True", ""), open, "Node p is ready.", "tunnel to this server: open for 60m", ""},
		"ready, tunnel ended": {farNode("True", ""), silent, "Node p is ready, but its tunnel to this server ended 90s ago, " +
			"so that logs, exec and metrics of its pods do not work: the machine did not answer.", "last heartbeat", "Wait"},
		"ready, the server has restarted": {farNode("True", ""), nodetunnel.State{}, "Node p is ready.", "", ""},
		"the server's own": {farNode("Unknown", ""), nodetunnel.State{Own: true}, "Node p does not report: no heartbeat.",
			"condition Ready is Unknown", "Start monopod"},
	} {
		f := parsed(t, c.objects)
		f.Tunnel = c.tunnel
		a := why.Of(f)
		if a.Sentence != c.want {
			t.Errorf("%s: %q, want %q", name, a.Sentence, c.want)
		}
		if evidence := strings.Join(a.Evidence, "\n"); !strings.Contains(evidence, c.shows) {
			t.Errorf("%s: evidence %q, want %q", name, evidence, c.shows)
		}
		if !strings.Contains(a.Do, c.do) || c.do == "" && a.Do != "" {
			t.Errorf("%s: to do %q, want %q", name, a.Do, c.do)
		}
	}
}
