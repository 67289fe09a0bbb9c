package daemonset

import (
	"context"
	"errors"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/apiserver/follow"
	"monopod/controllers/owned"
)

// carryOut creates and deletes pods, at most 250 each, and returns when a failed pod that
// has to wait may be deleted.
func (r *run) carryOut(ctx context.Context, v *view, p plan) (time.Duration, error) {
	var again time.Duration
	for _, pod := range p.failed {
		if wait := r.failures.tried(failure{v.ds.UID, v.ds.Status.ObservedGeneration, nodeOf(pod)}); wait > 0 {
			again = earliest(again, wait)
			continue
		}
		r.events.Eventf(v.ds, corev1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, nodeOf(pod))
		p.delete = append(p.delete, pod)
	}
	creates := p.create[:min(len(p.create), burst)]
	_, err := owned.SlowStart(len(creates), func(i int) error {
		err := r.control.Create(ctx, v.ds, r.podFor(v, creates[i]))
		if owned.Ending(err) {
			return nil // it ends with its namespace
		}
		return err
	})
	errs := follow.Each(parallel, p.delete[:min(len(p.delete), burst)], func(pod *corev1.Pod) error {
		if pod.Status.Phase == corev1.PodSucceeded {
			r.events.Eventf(v.ds, corev1.EventTypeNormal, "SucceededDaemonPod", "Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, nodeOf(pod))
		}
		if err := r.control.Delete(ctx, v.ds, pod); !owned.Gone(err) {
			return err
		}
		return nil
	})
	return again, errors.Join(append(errs, err)...)
}

// podFor is a new pod for a node.
func (r *run) podFor(v *view, node string) *corev1.Pod {
	pod := owned.NewPod(v.ds, r.claims.Ref(v.ds), &v.ds.Spec.Template)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = v.hash()
	if generation := v.ds.Annotations[generationLabel]; generation != "" {
		pod.Labels[podGenerationLabel] = generation
	}
	pod.Spec.Tolerations = tolerations(&pod.Spec)
	pod.Spec.Affinity = only(pod.Spec.Affinity, node)
	return pod
}

// How often failed pods of a node are replaced, upstream's figures.
const (
	firstFailure = time.Second
	mostFailure  = 15 * time.Minute
)

// failure is where a pod failed. Another template starts anew.
type failure struct {
	ds         types.UID
	generation int64
	node       string
}

// failures space out the deletions of failed pods, so that a pod which its node rejects
// again and again takes little work.
type failures struct {
	clock clock.PassiveClock

	mu sync.Mutex // guards of
	of map[failure]attempt
}

type attempt struct {
	at   time.Time
	wait time.Duration // until the next one
}

func newFailures(c clock.PassiveClock) *failures {
	return &failures{clock: c, of: map[failure]attempt{}}
}

// tried returns how long a failed pod must wait for its deletion. If it is 0, the next one
// of the node waits twice as long as this one has, 1 s at first.
func (f *failures) tried(at failure) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	last, ok := f.of[at]
	switch since := now.Sub(last.at); {
	case ok && since < last.wait:
		return last.wait - since
	case !ok || since > 2*mostFailure:
		f.of[at] = attempt{now, firstFailure}
	default:
		f.of[at] = attempt{now, min(2*last.wait, mostFailure)}
	}
	return 0
}

// forget is for a DaemonSet that is gone, or has changed.
func (f *failures) forget(ds types.UID, before int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range f.of {
		if at.ds == ds && at.generation < before {
			delete(f.of, at)
		}
	}
}
