// Package why explains the state of an object in plain words: one sentence, the evidence for it, and what to do.
//
// Of derives the answer from facts, which facts.Collect reads, and reads nothing itself. Package words contains the
// phrases. The command line and the page show the same answers.
//
//   - causes.go recognizes causes by the messages of the cluster's components
//   - policies.go describes what NetworkPolicies allow
//   - problems.go finds all objects with which something is wrong
package why

import (
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// Path is the API server's path. GET with the parameters kind, namespace and name returns an Answer; without kind and
// name it returns a Report about one namespace or about all.
const Path = "/monopod/why"

// Answer explains the state of an object.
type Answer struct {
	Sentence string   `json:"sentence"`     // the state and its cause
	Evidence []string `json:"evidence"`     // facts that show the cause, one a line
	Do       string   `json:"do,omitempty"` // what the user should do; empty: nothing
	// Starts are the next scheduled times of a CronJob that is not suspended, as its controller will find them.
	Starts []time.Time `json:"starts,omitempty"`
}

// Of explains the state of f.Object. It removes control characters, which objects and logs may contain.
func Of(f facts.Facts) Answer {
	a := explanation{&f}.explain()
	out := Answer{Sentence: words.Plain(a.Sentence), Evidence: []string{}, Do: words.Plain(a.Do), Starts: a.Starts}
	for _, line := range a.Evidence {
		out.Evidence = append(out.Evidence, words.Plain(line))
	}
	for _, hidden := range f.Hidden {
		out.Evidence = append(out.Evidence, "not known: "+words.Plain(hidden))
	}
	return out
}

// explanation derives answers from facts. Each method explains one kind of objects, or one kind of trouble.
type explanation struct{ *facts.Facts }

func (f explanation) explain() Answer {
	switch o := f.Object.(type) {
	case *corev1.Pod:
		return f.pod(o)
	case *appsv1.Deployment:
		return workloads{f}.deployment(o)
	case *appsv1.ReplicaSet:
		return workloads{f}.replicated(o, ptr.Deref(o.Spec.Replicas, 1), o.Status.ReadyReplicas, o.Status.Replicas)
	case *appsv1.StatefulSet:
		return workloads{f}.statefulSet(o)
	case *appsv1.DaemonSet:
		return workloads{f}.daemonSet(o)
	case *batchv1.Job:
		return workloads{f}.job(o)
	case *batchv1.CronJob:
		return workloads{f}.cronJob(o)
	case *corev1.Service:
		return traffic{f}.service(o)
	case *networkingv1.Ingress:
		return traffic{f}.ingress(o)
	case *networkingv1.NetworkPolicy:
		return f.networkPolicy(o)
	case *corev1.PersistentVolumeClaim:
		return f.claim(o)
	case *corev1.Node:
		return f.node(o)
	case *autoscalingv2.HorizontalPodAutoscaler:
		return f.autoscaler(o)
	case *policyv1.PodDisruptionBudget:
		return f.budget(o)
	case *certificatesv1.CertificateSigningRequest:
		return f.request(o)
	case *corev1.Namespace:
		return f.namespace(o)
	case *corev1.ResourceQuota:
		return f.quota(o)
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		var hooks []webhook
		for _, w := range o.Webhooks {
			hooks = append(hooks, webhook{w.Name, w.ClientConfig.Service, w.FailurePolicy})
		}
		return f.webhooks(hooks)
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		var hooks []webhook
		for _, w := range o.Webhooks {
			hooks = append(hooks, webhook{w.Name, w.ClientConfig.Service, w.FailurePolicy})
		}
		return f.webhooks(hooks)
	case *crd.Definition:
		return f.definition(o)
	}
	return f.generic()
}

// about returns an explanation of another object by the same facts.
func (f explanation) about(obj client.Object) explanation {
	about := *f.Facts
	about.Object = obj
	return explanation{&about}
}

// generic explains an object of any kind by its deletion, its conditions and the warnings about it.
func (f explanation) generic() Answer {
	name := words.Name(f.Object)
	if a := f.terminating(); a != nil {
		return *a
	}
	warnings := f.Warnings(f.Object)
	for _, c := range words.Conditions(f.Object) {
		if bad(c) {
			return answer("Follow the message of the condition; the controller of this kind has written it.",
				append(f.EventLines(warnings), words.Condition(c)),
				"%s is not %s: %s.", name, c.Type, words.Reason(c.Reason, c.Message))
		}
		if c.Type == "Ready" { // it is: what was reported before is over
			warnings = slices.DeleteFunc(warnings, func(e *corev1.Event) bool {
				return facts.LastOf(e).Before(c.LastTransitionTime.Time)
			})
		}
	}
	if len(warnings) > 0 {
		last := warnings[len(warnings)-1]
		return answer("Fix what the event reports; it repeats until then.", f.EventLines(warnings),
			"The last warning about %s says: %s.", name, words.Clip(last.Message))
	}
	return answer("", f.EventLines(f.EventsOf(f.Object)), "Nothing is known to be wrong with %s.", name)
}

// terminating explains an object that is being deleted and waits for its finalizers. It returns nil for other objects.
func (f explanation) terminating() *Answer {
	obj := f.Object
	if obj.GetDeletionTimestamp() == nil {
		return nil
	}
	name, since := words.Name(obj), words.Ago(f.Now.Sub(obj.GetDeletionTimestamp().Time))
	if len(obj.GetFinalizers()) == 0 {
		return found("", nil, "%s has been terminating for %s.", name, since)
	}
	evidence := []string{"deletionTimestamp: " + obj.GetDeletionTimestamp().UTC().Format(time.RFC3339)}
	for _, c := range words.Conditions(obj) {
		if c.Status == metav1.ConditionTrue && c.Message != "" { // a Namespace lists what it still contains
			evidence = append(evidence, words.Condition(c))
		}
	}
	return found("Let the controller that set the finalizer do its work; "+
		"remove the finalizer with kubectl patch only if that controller no longer exists.", evidence,
		"%s has been terminating for %s and waits for its %s.", name, since, words.List("finalizer", obj.GetFinalizers()))
}

// bad reports whether a condition says that something is wrong.
func bad(c metav1.Condition) bool {
	return (c.Status == metav1.ConditionFalse || c.Status == metav1.ConditionUnknown) && positive(c.Type)
}

// positive reports whether a condition of this type is good when it is True.
func positive(conditionType string) bool {
	return slices.Contains(
		[]string{"Ready", "Available", "Established", "NamesAccepted", "Accepted", "Programmed", "ResolvedRefs", "Synced",
			"Healthy", "Succeeded", "Progressing", "Approved"}, conditionType)
}

func answer(do string, evidence []string, format string, args ...any) Answer {
	return Answer{Sentence: fmt.Sprintf(format, args...), Evidence: evidence, Do: do}
}

func found(do string, evidence []string, format string, args ...any) *Answer {
	a := answer(do, evidence, format, args...)
	return &a
}
