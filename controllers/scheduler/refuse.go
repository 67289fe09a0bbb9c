package scheduler

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/podstate"
	"monopod/controllers/scheduler/cluster"
)

// concurrentVictims is the number of victims that are deleted concurrently (upstream's parallelism).
const concurrentVictims = 16

var errUnchanged = errors.New("nothing to change")

// reportUnschedulable deletes the victims of a pod that no node fits, and reports the reason in the pod's condition and
// an Event for each attempt; the recorder increments the count of a repeated Event.
func (r *run) reportUnschedulable(ctx context.Context, d *decision) error {
	r.metrics.unschedulable(r.deps.Clock.Since(d.began))
	nominated := new("")
	switch {
	case d.deallocate != nil:
		if err := r.deallocate(ctx, d.deallocate); err != nil {
			return err
		}
	case d.candidate != nil:
		if err := r.preempt(ctx, d); err != nil {
			r.mu.Lock()
			r.nominate(d.pod, "")
			r.mu.Unlock()
			return err
		}
		nominated = &d.candidate.Name
	case d.keepNomination:
		nominated = nil
	}
	waits, err := r.condition(ctx, d, corev1.PodReasonUnschedulable, nominated)
	if waits && !d.quiet {
		r.events.Eventf(d.pod.Pod, corev1.EventTypeWarning, "FailedScheduling", "%s", d.message)
	}
	return err
}

// preempt deletes the victims, and clears the nominations of less urgent pods.
func (r *run) preempt(ctx context.Context, d *decision) error {
	r.metrics.victims.Observe(float64(len(d.candidate.Victims)))
	errs := follow.Each(concurrentVictims, d.candidate.Victims, func(victim *cluster.Pod) error {
		if victim.DeletionTimestamp != nil {
			return nil
		}
		return r.remove(ctx, d, victim.Pod)
	})
	errs = append(errs, follow.Each(concurrentVictims, d.unnominated, func(pod *corev1.Pod) error {
		_, err := client.Update(ctx, r.deps.Client, pod, "status", func(p *corev1.Pod) error {
			if p.UID != pod.UID || p.Status.NominatedNodeName != d.candidate.Name {
				return errUnchanged
			}
			p.Status.NominatedNodeName = ""
			return nil
		})
		return ignore(err)
	})...)
	return errors.Join(errs...)
}

// remove sets the condition DisruptionTarget of a victim, then deletes the victim.
func (r *run) remove(ctx context.Context, d *decision, victim *corev1.Pod) error {
	_, err := client.Update(ctx, r.deps.Client, victim, "status", func(p *corev1.Pod) error {
		if p.UID != victim.UID {
			return errUnchanged
		}
		podstate.SetCondition(p, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			Message:            Component + ": preempting to accommodate a higher priority pod",
			ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(r.deps.Clock.Now()),
		})
		return nil
	})
	if ignore(err) != nil {
		return err
	}
	_, err = r.deps.Client.Delete(ctx, client.RefOf(victim),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
	if err == nil {
		r.events.Eventf(victim, corev1.EventTypeNormal, "Preempted", "Preempted by pod %v on node %v", d.pod.UID,
			d.candidate.Name)
	}
	if apierrors.IsConflict(err) {
		return nil // the pod was replaced
	}
	return ignore(err)
}

// ignore returns nil for an object that was deleted, or needs no change.
func ignore(err error) error {
	if errors.Is(err, errUnchanged) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// condition sets PodScheduled to False and the nominated node, unless they are set already or the pod was bound or
// replaced. It reports whether the pod still waits for a node. nominated nil keeps the nominated node.
func (r *run) condition(ctx context.Context, d *decision, reason string, nominated *string) (waits bool, err error) {
	pod := d.pod.Pod
	_, err = client.Update(ctx, r.deps.Client, pod, "status", func(p *corev1.Pod) error {
		if waits = p.UID == pod.UID && p.Spec.NodeName == ""; !waits {
			return errUnchanged
		}
		named := nominated != nil && p.Status.NominatedNodeName != *nominated
		old := podstate.Condition(p, corev1.PodScheduled)
		changed := old == nil || old.Status != corev1.ConditionFalse || old.Reason != reason || old.Message != d.message
		if !changed && !named {
			return errUnchanged
		}
		if named {
			p.Status.NominatedNodeName = *nominated
		}
		if changed {
			podstate.SetCondition(p, corev1.PodCondition{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: d.message,
				ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(r.deps.Clock.Now()),
			})
		}
		return nil
	})
	err = ignore(err)
	return waits && err == nil, err
}
