package why

import (
	"fmt"
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// remoteNode explains a node of another machine that has stopped reporting, is not ready, or has no connection to this
// server. It returns nil if nothing of that is so.
func (f explanation) remoteNode(n *corev1.Node, ready *corev1.NodeCondition, evidence []string) *Answer {
	beat := f.heartbeat(n)
	if f.Tunnel.Own || ready == nil || beat.IsZero() {
		return nil
	}
	joined := hasJoined(n)
	fate, pods := f.fate(n)
	evidence = append(evidence, pods...)
	switch {
	case ready.Status == corev1.ConditionUnknown:
		state := fmt.Sprintf("Node %s has not reported for %s", n.Name, words.Ago(f.Now.Sub(beat)))
		do := "Check that the machine is on, that it has network, and that its kubelet runs."
		switch {
		case joined && f.Tunnel.Open:
			state += ", although its tunnel to this server is open"
			do = "Read the log of monopod on that machine: it is connected, but it does not renew its lease."
		case joined && f.Tunnel.Since.IsZero():
			state += ", and has opened no tunnel to this server since the server started"
			do = "Check that the machine is on, that it has network, and that monopod join runs there; its log says why it " +
				"cannot connect."
		case joined:
			state += fmt.Sprintf(", and its tunnel to this server ended %s ago: %s", words.Ago(f.Now.Sub(f.Tunnel.Since)),
				words.Clip(f.Tunnel.End))
			do = "Check that the machine is on, that it has network, and that monopod join runs there; its log says why it " +
				"cannot connect."
			if f.Tunnel.Left {
				do = "Start monopod join on that machine, or wait until the machine is back; the log of monopod join says why " +
					"it ended."
			}
		}
		if fate != "" {
			state += "; " + fate + ", unless it reports again"
		}
		return found(do+" If it is gone for good: kubectl delete node "+n.Name, evidence, "%s.", state)
	case ready.Status != corev1.ConditionTrue:
		state := fmt.Sprintf("Node %s is not ready: %s", n.Name, words.Clip(ready.Message))
		if fate != "" {
			state += "; " + fate + ", unless it becomes ready"
		}
		return found("Read the log of monopod on that machine.", evidence, "%s.", state)
	case joined && !f.Tunnel.Open && !f.Tunnel.Since.IsZero():
		return found("Wait: the machine opens another tunnel; if it does not, the log of monopod join says why.", evidence,
			"Node %s is ready, but its tunnel to this server ended %s ago, so that logs, exec and metrics of its pods do not "+
				"work: %s.", n.Name, words.Ago(f.Now.Sub(f.Tunnel.Since)), words.Clip(f.Tunnel.End))
	}
	return nil
}

// hasJoined reports whether servers reach the kubelet of a node through a tunnel, not at a port.
func hasJoined(n *corev1.Node) bool { return n.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 }

// reports describes, as evidence, when the server has last heard of a node of another machine.
func (f explanation) reports(n *corev1.Node) (lines []string) {
	if f.Tunnel.Own {
		return nil
	}
	if beat := f.heartbeat(n); !beat.IsZero() {
		lines = append(lines, fmt.Sprintf("last heartbeat: %s (%s ago)", beat.UTC().Format(time.RFC3339),
			words.Ago(f.Now.Sub(beat))))
	}
	if hasJoined(n) {
		lines = append(lines, f.tunnel())
	}
	return lines
}

// heartbeat returns when a node last reported: it renewed its Lease, or posted its status. It returns the zero time if
// the node never did.
func (f explanation) heartbeat(n *corev1.Node) (beat time.Time) {
	if l := facts.Related[*coordinationv1.Lease](f.Facts, corev1.NamespaceNodeLease, n.Name); l != nil &&
		l.Spec.RenewTime != nil {
		beat = l.Spec.RenewTime.Time
	}
	for _, c := range n.Status.Conditions {
		if c.LastHeartbeatTime.After(beat) {
			beat = c.LastHeartbeatTime.Time
		}
	}
	return beat
}

// tunnel describes the tunnel of the node as evidence.
func (f explanation) tunnel() string {
	t := f.Tunnel
	since := words.Ago(f.Now.Sub(t.Since))
	switch {
	case t.Open:
		return fmt.Sprintf("tunnel to this server: open for %s, from %s", since, t.From)
	case t.Since.IsZero():
		return "tunnel to this server: none since the server started"
	}
	return fmt.Sprintf("tunnel to this server: ended %s ago, from %s: %s", since, t.From, words.Clip(t.End))
}

// fate says what becomes of the pods of a node that is tainted because it is not ready or does not report, and lists
// them as evidence. The clause is empty if none of them is evicted.
func (f explanation) fate(n *corev1.Node) (clause string, evidence []string) {
	at := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute &&
			(t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady)
	})
	if at < 0 || n.Spec.Taints[at].TimeAdded == nil {
		return "", nil
	}
	taint := n.Spec.Taints[at]
	var lines []string
	var left []time.Duration // until each eviction
	var last string          // the pod of the last one
	for _, p := range f.Pods {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		state := "stays, because it tolerates " + taint.Key
		if stay, forever := tolerates(p, &taint); p.DeletionTimestamp != nil {
			state = "is terminating until the node reports that its containers have ended"
		} else if !forever {
			left, last = append(left, max(0, taint.TimeAdded.Add(stay).Sub(f.Now))), p.Name
			state = "is evicted in about " + words.Ago(left[len(left)-1])
		}
		lines = append(lines, fmt.Sprintf("pod %s/%s %s", p.Namespace, p.Name, state))
	}
	slices.Sort(lines)
	if more := len(lines) - facts.MaxEvents; more > 0 {
		return evictions(left, len(lines), last), append(lines[:facts.MaxEvents], "and "+words.Count(more, "more pod"))
	}
	return evictions(left, len(lines), last), lines
}

// evictions is a clause about the evictions of some of a node's pods, which are of all pods, and happen when left has
// passed. name is the pod, if it is the only one.
func evictions(left []time.Duration, all int, name string) string {
	if len(left) == 0 {
		return ""
	}
	slices.Sort(left)
	first := words.Ago(left[0])
	when := "in about " + first
	switch {
	case left[0] == 0:
		when = "now"
	case first != words.Ago(left[len(left)-1]):
		when = "one after the other, the first in about " + first
	}
	switch {
	case all == 1:
		return fmt.Sprintf("its pod %s is evicted %s", name, when)
	case len(left) == 1:
		return fmt.Sprintf("1 of its %s is evicted %s", words.Count(all, "pod"), when)
	case len(left) == all:
		return fmt.Sprintf("its %s are evicted %s", words.Count(all, "pod"), when)
	}
	return fmt.Sprintf("%d of its %s are evicted %s", len(left), words.Count(all, "pod"), when)
}

// maxSeconds is the largest number of seconds that fits into a time.Duration.
const maxSeconds = int64(math.MaxInt64 / time.Second)

// tolerates returns how long a pod tolerates a taint. As in upstream, the first matching toleration counts.
func tolerates(p *corev1.Pod, taint *corev1.Taint) (stay time.Duration, forever bool) {
	for i := range p.Spec.Tolerations {
		if scheduling.TolerationsTolerateTaint(klog.Logger{}, p.Spec.Tolerations[i:i+1], taint, false) {
			seconds := p.Spec.Tolerations[i].TolerationSeconds
			if seconds == nil {
				return 0, true
			}
			return time.Duration(min(max(0, *seconds), maxSeconds)) * time.Second, false
		}
	}
	return 0, false
}
