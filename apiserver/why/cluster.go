package why

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

var (
	remaining  = regexp.MustCompile(`(\S+) has (\d+) resource instances`)
	finalizing = regexp.MustCompile(`(\S+) in (\d+) resource instances`)
)

// namespace explains a Namespace. While it is being deleted, its conditions say what still exists in it.
func (f explanation) namespace(n *corev1.Namespace) Answer {
	if n.DeletionTimestamp == nil {
		return f.generic()
	}
	state := fmt.Sprintf("Namespace %s has been terminating for %s", n.Name,
		words.Ago(f.Now.Sub(n.DeletionTimestamp.Time)))
	var evidence, left, kinds, finalizers, failed []string
	for _, c := range n.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		evidence = append(evidence,
			words.Condition(
				metav1.Condition{Type: string(c.Type), Status: metav1.ConditionTrue, Reason: c.Reason, Message: c.Message}))
		switch c.Type {
		case corev1.NamespaceContentRemaining:
			for _, m := range remaining.FindAllStringSubmatch(c.Message, -1) {
				kind := strings.TrimSuffix(m[1], ".")
				kinds, left = append(kinds, kind), append(left, kind+" ("+m[2]+")")
			}
		case corev1.NamespaceFinalizersRemaining:
			for _, m := range finalizing.FindAllStringSubmatch(c.Message, -1) {
				finalizers = append(finalizers, m[1])
			}
		case corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
			corev1.NamespaceDeletionContentFailure:
			failed = append(failed, words.Clip(c.Message))
		}
	}
	switch {
	case len(failed) > 0 && len(finalizers) == 0:
		return answer("Fix what the message names: start the server of the APIService (kubectl get apiservices), "+
			"or delete the APIService if it is no longer needed.",
			evidence, "%s: its content cannot be deleted: %s.", state, strings.Join(failed, "; "))
	case len(finalizers) > 0:
		return answer(
			fmt.Sprintf("Let the controller that set the finalizer do its work. If it no longer exists, "+
				"remove the finalizer from each object with kubectl patch; to list them: kubectl get %s -n %s",
				strings.Join(kinds, ","), n.Name), evidence,
			"%s: it still contains %s, with the %s.", state, strings.Join(left, ", "), words.List("finalizer", finalizers))
	case len(left) > 0:
		return answer("Wait until they are deleted; to see them: kubectl get "+strings.Join(kinds, ",")+" -n "+n.Name,
			evidence, "%s: it still contains %s.", state, strings.Join(left, ", "))
	case len(n.Finalizers) > 0:
		return *f.terminating()
	}
	return answer(
		"Wait; if it stays like this, check that the namespace controller runs: /healthz?verbose, and --controllers.",
		evidence, "%s; its content is being deleted.", state)
}

// quota explains which resources of a ResourceQuota are used up.
func (f explanation) quota(q *corev1.ResourceQuota) Answer {
	if a := f.terminating(); a != nil {
		return *a
	}
	var up, evidence []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		hard, used := q.Status.Hard[name], q.Status.Used[name]
		evidence = append(evidence, fmt.Sprintf("%s: %s of %s used", name, used.String(), hard.String()))
		if used.Cmp(hard) >= 0 {
			up = append(up, fmt.Sprintf("%s (%s of %s)", name, used.String(), hard.String()))
		}
	}
	if len(up) > 0 {
		return answer("Raise spec.hard, lower requests and limits, or delete objects of the namespace.", evidence,
			"ResourceQuota %s is used up: %s; nothing that needs more can be created.", q.Name, strings.Join(up, ", "))
	}
	return answer("", evidence, "ResourceQuota %s is not used up.", q.Name)
}

// webhook contains the fields that validating and mutating webhooks have in common.
type webhook struct {
	name    string
	service *admissionregistrationv1.ServiceReference
	failure *admissionregistrationv1.FailurePolicyType
}

// webhooks explains a webhook configuration by the first webhook whose Service does not answer.
func (f explanation) webhooks(hooks []webhook) Answer {
	if a := f.terminating(); a != nil {
		return *a
	}
	for _, h := range hooks {
		if h.service == nil {
			continue
		}
		effect := "requests that it matches are refused"
		if h.failure != nil && *h.failure == admissionregistrationv1.Ignore {
			effect = "requests that it matches are admitted without it (failurePolicy: Ignore)"
		}
		state := fmt.Sprintf("The webhook %s does not answer, so that %s", h.name, effect)
		do := "Start the webhook's Service, or delete the configuration: kubectl delete " +
			strings.ToLower(strings.Replace(words.Name(f.Object), " ", "/", 1))
		if a := f.webhookDown(h.service.Namespace, h.service.Name, state, do); a != nil {
			return *a
		}
	}
	return f.generic()
}

// definition explains a CustomResourceDefinition by its conversion webhook, or else by its conditions.
func (f explanation) definition(d *crd.Definition) Answer {
	if at := facts.Conversion(d); at != nil && d.DeletionTimestamp == nil {
		state := fmt.Sprintf("CustomResourceDefinition %s cannot convert objects between its versions, "+
			"because its conversion webhook does not answer", d.Name)
		do := "Start the webhook's Service, or set spec.conversion.strategy: None if the versions are alike."
		if a := f.webhookDown(at.Namespace, at.Name, state, do); a != nil {
			return *a
		}
	}
	return f.generic()
}

// webhookDown explains a webhook whose Service does not exist or has no ready endpoint. It returns nil if the Service
// has one.
func (f explanation) webhookDown(namespace, name, state, do string) *Answer {
	if f.Lacks(client.Services, namespace, name) {
		return found(do, nil, "%s: its Service %s in namespace %s does not exist.", state, name, namespace)
	}
	s := facts.Related[*corev1.Service](f.Facts, namespace, name)
	if s == nil || (traffic{f.about(s)}).ready(s) > 0 {
		return nil
	}
	a := traffic{f.about(s)}.service(s)
	a.Sentence = state + ": " + a.Sentence
	return &a
}
