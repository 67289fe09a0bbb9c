package why

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// networkPolicy explains which pods a NetworkPolicy selects, and what it allows.
func (f explanation) networkPolicy(p *networkingv1.NetworkPolicy) Answer {
	if a := f.terminating(); a != nil {
		return *a
	}
	if len(f.Pods) == 0 {
		return answer("Make spec.podSelector equal to labels of the pods.", nil,
			"NetworkPolicy %s has no effect: it selects no pod.", p.Name)
	}
	var evidence []string
	for _, pod := range f.Pods {
		if len(evidence) == facts.MaxEvents {
			evidence = append(evidence, fmt.Sprintf("and %d more pods", len(f.Pods)-facts.MaxEvents))
			break
		}
		evidence = append(evidence, "selects pod "+pod.Name)
	}
	return answer("", evidence, "NetworkPolicy %s selects %s: %s.", p.Name, words.Count(len(f.Pods), "pod"),
		strings.Join(Describe(p), "; "))
}

// droppedByPolicy names the NetworkPolicies that may drop the packets of a connection, if the last line of the log says
// that a connection timed out.
func (c container) droppedByPolicy(lines []string) (do string, evidence []string) {
	if len(lines) == 0 || !facts.NoAnswer.MatchString(lines[len(lines)-1]) {
		return "", nil
	}
	var names []string
	for _, p := range facts.Every[*networkingv1.NetworkPolicy](c.Facts) {
		// The destination is unknown: any ingress policy may select it.
		if Selects(p, c.pod, networkingv1.PolicyTypeEgress) ||
			slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			names, evidence = append(names, p.Name), append(evidence, Line(p))
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return fmt.Sprintf("A connection got no answer. If its destination runs and is ready, %s may drop it: "+
		"monopod why networkpolicy/%s says what it allows. ", words.List("NetworkPolicy", names), names[0]), evidence
}
