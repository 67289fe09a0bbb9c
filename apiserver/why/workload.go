package why

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// workloads explains objects that create pods.
type workloads struct{ explanation }

// worstPod explains an owner by its worst pod. It returns nil if all pods are ready.
func (f explanation) worstPod(state string, pods []*corev1.Pod) *Answer {
	p := facts.Worst(pods)
	if p == nil {
		return nil
	}
	a := f.about(p).explain()
	a.Sentence = state + ": " + words.Lower(a.Sentence)
	a.Evidence = append([]string{fmt.Sprintf("pod %s, phase %s", p.Name, p.Status.Phase)}, a.Evidence...)
	return &a
}

// notCreated explains why the API refuses the pods that the object by creates. It returns nil without a message.
func (f explanation) notCreated(state string, by client.Object, message string) *Answer {
	if by == nil || message == "" {
		return nil
	}
	evidence := append([]string{words.Clip(message)}, f.EventLines(f.Warnings(by))...)
	retry := f.retryHint()
	if c, m := Creation(message); m != "" {
		return found(c.Do+retry, evidence, "%s: no pod can be created, because %s (%s).", state, c.Sentence, m)
	}
	return found("Change the template as the message says."+retry, evidence, "%s: no pod can be created: %s.", state,
		words.Clip(message))
}

// retryHint says when a controller tries to create pods again.
func (f explanation) retryHint() string {
	text := " The controller tries again by itself, after pauses that grow to 16 minutes"
	switch f.Object.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet:
		kind, name, _ := strings.Cut(words.Name(f.Object), " ")
		return text + "; at once after: kubectl rollout restart " + strings.ToLower(kind) + "/" + name
	}
	return text + "."
}

// creationError returns the message of the newest Event about a creation that failed, unless one succeeded later.
func (f explanation) creationError(by client.Object) string {
	if e := f.Last(by, "", "FailedCreate", "SuccessfulCreate"); e != nil && e.Reason == "FailedCreate" {
		return e.Message
	}
	return ""
}

func (f workloads) deployment(d *appsv1.Deployment) Answer {
	want := ptr.Deref(d.Spec.Replicas, 1)
	state := fmt.Sprintf("Deployment %s has %d of %d replicas ready", d.Name, d.Status.ReadyReplicas, want)
	if a := f.terminating(); a != nil {
		return *a
	}
	var evidence []string
	for _, c := range d.Status.Conditions {
		evidence = append(evidence,
			words.Condition(
				metav1.Condition{Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason,
					Message: c.Message}))
	}
	done := d.Status.ReadyReplicas >= want && d.Status.UpdatedReplicas >= want && d.Status.Replicas == want
	newest := f.NewestOf(d)
	if !done && newest != nil && d.Status.ReadyReplicas >= want && newest.Status.ReadyReplicas < want {
		state += ", not all of the current revision"
	}
	switch {
	case d.Generation > d.Status.ObservedGeneration:
		return answer(
			"If it stays like this, check that the deployment controller runs: /healthz?verbose, and --controllers.", evidence,
			"Deployment %s was changed, and its controller has not acted on it yet.", d.Name)
	case d.Spec.Paused && (d.Status.UpdatedReplicas < want || newest == nil):
		return answer("kubectl rollout resume deployment/"+d.Name, evidence,
			"%s, and its rollout is paused: changes of the template wait.", state)
	case want == 0 && d.Status.Replicas == 0:
		return answer("kubectl scale deployment/"+d.Name+" --replicas=1", evidence,
			"Deployment %s runs no pods, because its replicas are 0.", d.Name)
	case done && d.Spec.Paused:
		return answer("", evidence, "Deployment %s is complete: %d of %d replicas are ready; it is paused.", d.Name,
			d.Status.ReadyReplicas, want)
	case done:
		return answer("", evidence, "Deployment %s is complete: %d of %d replicas are ready.", d.Name, d.Status.ReadyReplicas,
			want)
	}
	if newest != nil && newest.Status.Replicas < ptr.Deref(newest.Spec.Replicas, 1) {
		if a := f.notCreated(state, newest, f.creationError(newest)); a != nil {
			a.Do = f.undoHint(a.Do, d, newest)
			return *a
		}
	}
	for _, pods := range [][]*corev1.Pod{facts.OwnedBy(f.Pods, newest), f.Pods} {
		if a := f.worstPod(state, pods); a != nil {
			a.Evidence = append(a.Evidence, evidence...)
			a.Do = f.undoHint(a.Do, d, newest)
			return *a
		}
	}
	return answer("Wait; the rollout goes on by itself.", evidence, "%s; its rollout is in progress.", state)
}

// undoHint appends to do how to return to the previous revision, if it has ready pods.
func (f workloads) undoHint(do string, d *appsv1.Deployment, newest *appsv1.ReplicaSet) string {
	for _, rs := range facts.Every[*appsv1.ReplicaSet](f.Facts) {
		if metav1.IsControlledBy(rs, d) && newest != nil && rs.Name != newest.Name && rs.Status.ReadyReplicas > 0 {
			if do != "" && !strings.ContainsAny(do[len(do)-1:], ".?!") { // it ends with a command
				do += "."
			}
			return strings.TrimSpace(do +
				" The previous revision still runs; to return to it: kubectl rollout undo deployment/" + d.Name)
		}
	}
	return do
}

// replicated explains an object that keeps a number of pods.
func (f workloads) replicated(obj client.Object, want, ready, exist int32) Answer {
	state := fmt.Sprintf("%s has %d of %d pods ready", words.Name(obj), ready, want)
	if a := f.terminating(); a != nil {
		return *a
	}
	if want == 0 && exist == 0 {
		return answer("", nil, "%s runs no pods, because it should run none.", words.Name(obj))
	}
	if exist < want {
		if a := f.notCreated(state, obj, f.creationError(obj)); a != nil {
			return *a
		}
	}
	if ready < want {
		if a := f.worstPod(state, f.Pods); a != nil {
			return *a
		}
		return answer("Wait; if it stays like this, read the events.", f.EventLines(f.EventsOf(obj)),
			"%s; its pods are being created.", state)
	}
	return answer("", nil, "%s.", state)
}

func (f workloads) statefulSet(s *appsv1.StatefulSet) Answer {
	if p, a := f.outdated(s); a != nil {
		a.Do = "kubectl delete pod " + p.Name
		a.Evidence = append(a.Evidence,
			fmt.Sprintf("pod %s is of the revision %s, the StatefulSet wants %s", p.Name,
				p.Labels[appsv1.StatefulSetRevisionLabel], s.Status.UpdateRevision),
			"a rollout waits until each pod is ready (podManagementPolicy: OrderedReady), "+
				"so that it does not replace a broken pod of another revision")
		return *a
	}
	a := f.replicated(s, ptr.Deref(s.Spec.Replicas, 1), s.Status.ReadyReplicas, s.Status.Replicas)
	if ordered := s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement; ordered &&
		s.Status.Replicas < ptr.Deref(s.Spec.Replicas, 1) && len(f.Pods) > 0 && a.Do != "" {
		a.Evidence = append(a.Evidence,
			"the next pod is created when the ones before it are ready (podManagementPolicy: OrderedReady)")
	}
	return a
}

// outdated returns a broken pod of another revision, for which the rollout waits that would replace it, and its
// explanation. Both are nil if there is none.
func (f workloads) outdated(s *appsv1.StatefulSet) (*corev1.Pod, *Answer) {
	if s.DeletionTimestamp != nil || s.Spec.PodManagementPolicy == appsv1.ParallelPodManagement ||
		s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType || s.Status.UpdateRevision == "" {
		return nil, nil
	}
	p := facts.Worst(f.Pods)
	if p == nil || p.DeletionTimestamp != nil {
		return nil, nil
	}
	if revision := p.Labels[appsv1.StatefulSetRevisionLabel]; revision == "" || revision == s.Status.UpdateRevision {
		return nil, nil
	}
	return p, f.worstPod(
		fmt.Sprintf("StatefulSet %s has %d of %d pods ready, and its rollout waits for a broken pod of another revision",
			s.Name, s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 1)), f.Pods)
}

func (f workloads) daemonSet(d *appsv1.DaemonSet) Answer {
	if d.DeletionTimestamp == nil && d.Status.DesiredNumberScheduled == 0 && d.Generation <= d.Status.ObservedGeneration {
		return answer("Label a node, or change nodeSelector, affinity or tolerations of the template.",
			f.EventLines(f.EventsOf(d)), "DaemonSet %s runs no pods: no node fits its selector and tolerations.", d.Name)
	}
	return f.replicated(d, d.Status.DesiredNumberScheduled, d.Status.NumberReady, d.Status.CurrentNumberScheduled)
}
