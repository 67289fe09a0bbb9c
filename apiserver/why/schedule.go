package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

var (
	insufficient = regexp.MustCompile(`Insufficient ([^\s,.]+(?:\.[^\s,]+)*)`)
	noClaim      = regexp.MustCompile(`persistentvolumeclaim "([^"]+)" not found`)
)

// unscheduled explains a pod without a node.
func (f explanation) unscheduled(p *corev1.Pod) *Answer {
	if p.Spec.NodeName != "" {
		return nil
	}
	if gates := p.Spec.SchedulingGates; len(gates) > 0 {
		var names []string
		for _, g := range gates {
			names = append(names, g.Name)
		}
		return found(
			"The controller that set the gate removes it; if it no longer exists, remove it from spec.schedulingGates.", nil,
			"Pod %s waits for a node: its scheduling %s not removed yet.", p.Name, words.List("gate", names)+
				map[bool]string{true: " is", false: " are"}[len(names) == 1])
	}
	cond := facts.PodCondition(p, corev1.PodScheduled)
	if s := p.Spec.SchedulerName; cond == nil && s != "" && s != corev1.DefaultSchedulerName {
		return found("Start that scheduler, or remove spec.schedulerName and create the pod again.", nil,
			"Pod %s waits for the scheduler %q, which has not looked at it.", p.Name, s)
	}
	if cond == nil || cond.Message == "" {
		return found("If it stays like this, check that the scheduler runs: /healthz?verbose, and --controllers.",
			f.EventLines(f.EventsOf(p)), "Pod %s has been waiting for the scheduler for %s.", p.Name,
			words.Ago(f.Now.Sub(p.CreationTimestamp.Time)))
	}
	phrases, dos, evidence := f.schedulingCauses(p, cond.Message)
	evidence = append([]string{"condition PodScheduled is False: " + words.Clip(cond.Message)}, evidence...)
	if nominated := p.Status.NominatedNodeName; nominated != "" {
		return found("Wait until the other pods have ended.", evidence,
			"Pod %s waits for node %s, where pods of lower priority are being deleted to make room for it.", p.Name, nominated)
	}
	if len(phrases) == 0 {
		return found("Change the pod or the nodes as the message says; it is scheduled by itself then.", evidence,
			"Pod %s has no node: %s.", p.Name, words.Clip(cond.Message))
	}
	return found(strings.Join(dos, " "), evidence, "Pod %s has no node: %s.", p.Name, strings.Join(phrases, "; "))
}

// schedulingCauses finds the causes in a message of the scheduler.
func (f explanation) schedulingCauses(p *corev1.Pod, message string) (phrases, dos, evidence []string) {
	for _, m := range insufficient.FindAllStringSubmatch(message, -1) {
		phrase, do, line := f.insufficient(p, corev1.ResourceName(strings.TrimSuffix(m[1], ".")))
		phrases, dos, evidence = append(phrases, phrase), append(dos, do), append(evidence, line...)
	}
	if m := notInstalled.FindStringSubmatch(message); m != nil {
		phrases = append(phrases, fmt.Sprintf("the CSI driver %s of its volume is not installed on any node that fits", m[1]))
		dos = append(dos, "Check the DaemonSet of the driver: its pods register the driver with their nodes "+
			"(kubectl get csinodes).")
	}
	if m := noClaim.FindStringSubmatch(message); m != nil {
		return append(phrases, fmt.Sprintf("its claim %q does not exist", m[1])),
			append(dos, "Create the PersistentVolumeClaim, or correct spec.volumes."), evidence
	}
	if strings.Contains(message, "no nodes available") {
		return append(phrases, "there are no nodes"), append(dos, "Start the node agent: kubectl get nodes lists none."),
			evidence
	}
	for _, c := range Scheduling(message) {
		switch {
		case strings.Contains(c.Do, "monopod why pvc/"):
			if a := f.unbound(p); a != nil {
				phrases, dos, evidence = append(phrases, words.Lower(strings.TrimSuffix(a.Sentence, "."))), append(dos, a.Do),
					append(evidence, a.Evidence...)
				continue
			}
		case strings.Contains(c.Sentence, "taint"):
			if node, condition := f.tainted(p); node != "" {
				phrases, dos = append(phrases, fmt.Sprintf("node %s has the condition %s", node, condition)),
					append(dos, conditionRemedy(condition)+" Its cause: monopod why node/"+node)
				continue
			}
		case strings.Contains(message, facts.NoFreePorts) && strings.Contains(c.Sentence, "host port"):
			if holders := f.portHolders(p); len(holders) > 0 {
				c.Sentence = strings.Join(holders, ", ")
			}
		}
		phrases, dos = append(phrases, c.Sentence), append(dos, f.fillNames(p, c.Do))
	}
	for _, n := range facts.Every[*corev1.Node](f.Facts) {
		for _, t := range n.Spec.Taints {
			evidence = append(evidence, fmt.Sprintf("node %s has the taint %s", n.Name, t.ToString()))
		}
	}
	return phrases, dos, evidence
}

// unbound explains the first claim of a pod that is not bound. It returns nil if no claim is known to be unbound.
func (f explanation) unbound(p *corev1.Pod) *Answer {
	for _, name := range facts.Claims(p) {
		if claim := facts.Related[*corev1.PersistentVolumeClaim](f.Facts, p.Namespace, name); claim != nil &&
			claim.Status.Phase != corev1.ClaimBound {
			return new(f.about(claim).claim(claim))
		}
	}
	return nil
}

// tainted returns the first node that repels a pod by the taint for a node condition, and that condition. It returns
// empty strings if there is no such node.
func (f explanation) tainted(p *corev1.Pod) (string, corev1.NodeConditionType) {
	conditions := map[string]corev1.NodeConditionType{
		corev1.TaintNodeDiskPressure: corev1.NodeDiskPressure, corev1.TaintNodeMemoryPressure: corev1.NodeMemoryPressure,
		corev1.TaintNodePIDPressure:        corev1.NodePIDPressure,
		corev1.TaintNodeNetworkUnavailable: corev1.NodeNetworkUnavailable,
		corev1.TaintNodeNotReady:           "Ready=False", corev1.TaintNodeUnreachable: "Ready=Unknown",
	}
	for _, n := range facts.Every[*corev1.Node](f.Facts) {
		for _, t := range n.Spec.Taints {
			tolerates := func(o corev1.Toleration) bool { return o.Key == t.Key || o.Key == "" }
			if c, ok := conditions[t.Key]; ok && !slices.ContainsFunc(p.Spec.Tolerations, tolerates) {
				return n.Name, c
			}
		}
	}
	return "", ""
}

// portHolders names the pods that use the host ports of a pod.
func (f explanation) portHolders(p *corev1.Pod) (phrases []string) {
	for _, other := range facts.Every[*corev1.Pod](f.Facts) {
		for _, port := range facts.SharedPorts(p, other) {
			name := other.Name
			if other.Namespace != p.Namespace {
				name = other.Namespace + "/" + name
			}
			phrases = append(phrases,
				fmt.Sprintf("pod %s has its hostPort %d on node %s", name, port.HostPort, other.Spec.NodeName))
		}
	}
	return phrases
}

// fillNames replaces the placeholders NODE and NAME if only one node or claim is possible.
func (f explanation) fillNames(p *corev1.Pod, do string) string {
	if nodes := facts.Every[*corev1.Node](f.Facts); len(nodes) == 1 {
		do = strings.ReplaceAll(do, "NODE", nodes[0].Name)
	}
	var claims []string
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		}
	}
	if len(claims) == 1 {
		do = strings.ReplaceAll(do, "pvc/NAME", "pvc/"+claims[0])
	}
	return do
}

// insufficient explains a resource of which no node has enough.
func (f explanation) insufficient(p *corev1.Pod, name corev1.ResourceName) (phrase, do string, evidence []string) {
	want := helpers.PodRequests(p, helpers.PodResourcesOptions{})[name]
	var most resource.Quantity
	for _, n := range facts.Every[*corev1.Node](f.Facts) {
		have := n.Status.Allocatable[name]
		evidence = append(evidence, fmt.Sprintf("node %s: %s of %s allocatable to pods", n.Name, have.String(), name))
		if have.Cmp(most) > 0 {
			most = have
		}
	}
	if !most.IsZero() && want.Cmp(most) > 0 {
		return fmt.Sprintf("it requests %s of %s, and no node has more than %s", want.String(), name, most.String()),
			fmt.Sprintf("Lower resources.requests.%s, or add a larger node.", name), evidence
	}
	if most.IsZero() && len(evidence) > 0 {
		return fmt.Sprintf("no node offers %s", name),
			"Start the device plugin that offers it, or remove the request.", evidence
	}
	if want.IsZero() {
		return fmt.Sprintf("not enough %s is left", name), "Delete other pods, or add a node.", evidence
	}
	return fmt.Sprintf("it requests %s of %s, and the requests of other pods leave less", want.String(), name),
		fmt.Sprintf("Lower resources.requests.%s, delete other pods, or add a node; "+
			"kubectl describe node lists the requests.", name), evidence
}
