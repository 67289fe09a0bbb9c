package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

var (
	errBound        = errors.New("pod is bound already")
	errVolumeTaken  = errors.New("the volume was bound to another claim meanwhile")
	errProvisioning = errors.New("binding volumes: provisioning failed")
	errTimeout      = errors.New("binding volumes: context deadline exceeded")
	errDevices      = errors.New("device binding timeout")
)

// bind writes the binding. The pod leaves the queue when the watch shows the binding.
func (r *run) bind(ctx context.Context, e *Entry, p *cluster.Pod, node string, began time.Time) error {
	pod := p.Pod
	_, err := client.Update(ctx, r.deps.Client, pod, "binding", func(p *corev1.Pod) error {
		p.UID = pod.UID // conflicts with another pod of the same name
		if p.Spec.NodeName != "" {
			return apierrors.NewConflict(client.Pods.GroupResource(), p.Name, errBound)
		}
		p.Spec.NodeName = node
		return nil
	})
	if err != nil {
		return err
	}
	r.metrics.scheduled(e, r.deps.Clock.Since(began), r.deps.Clock.Since(e.Since))
	r.events.Eventf(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name,
		node)
	return nil
}

// retryLater removes a pod from the node after an error, and retries it after a backoff. A pod that was deleted or
// bound meanwhile leaves the queue with its watch event.
func (r *run) retryLater(ctx context.Context, e *Entry, pod *cluster.Pod, err error) {
	if ctx.Err() != nil {
		return
	}
	if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		r.metrics.attempts.WithLabelValues(Component, "error").Inc()
		r.deps.Log.Warn("failed to schedule pod", zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name),
			zap.Error(err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if place := r.reserved[e.Key]; place != nil && place.entry == e {
		delete(r.reserved, e.Key)
	}
	if p := r.cluster.Pod(pod.UID); p != nil && p.Assumed {
		r.cluster.Remove(pod.UID)
		r.loop.Add(r.changed(cluster.Change{ChangeKind: p.RemovalChange(), Node: r.cluster.Node(p.Node), Pod: p})...)
		p.Assumed, p.Volumes = false, nil
	}
	r.queue.Failed(e, r.deps.Clock.Now())
}

// reservation is a pod on a node whose volumes are being bound, or whose devices are being prepared.
type reservation struct {
	entry   *Entry
	pod     *cluster.Pod
	node    string
	since   time.Time
	devices bool     // the pod waits for binding conditions of devices
	claims  []string // keys of its ResourceClaims
	// selected are the claims with the annotation selected-node, which their provisioners read; mu of run guards it.
	selected map[types.UID]bool
}

func (r *run) reservation(key follow.Key) *reservation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reserved[key]
}

// await binds a pod whose claims are bound and whose devices are ready, or continues to wait.
func (r *run) await(ctx context.Context, place *reservation) (time.Duration, error) {
	left := place.since.Add(cluster.BindTime).Sub(r.deps.Clock.Now())
	late := errTimeout
	if place.devices {
		late = errDevices
	}
	err := late
	if left > 0 {
		err = r.bindWhenReady(ctx, place)
	}
	if err == nil && r.reservation(place.entry.Key) != nil {
		return left, nil
	}
	if errors.Is(err, late) || errors.Is(err, errProvisioning) {
		if errors.Is(err, late) {
			r.observeDeviceWait(place, "timeout")
		}
		_, failed := r.condition(ctx, &decision{entry: place.entry, pod: place.pod, message: err.Error()},
			corev1.PodReasonUnschedulable, nil)
		r.retryLater(ctx, place.entry, place.pod, errors.Join(err, failed))
	} else if err != nil {
		r.retryLater(ctx, place.entry, place.pod, err)
	}
	return r.next(place.entry.Key, nil), nil
}

// bindWhenReady requests the binding of a pod's open claims on its node, to existing or new volumes. It binds the pod
// if no open claim is left. Bound claims wake the pod.
func (r *run) bindWhenReady(ctx context.Context, place *reservation) error {
	r.mu.Lock()
	c := rules.NewCycle(r.cluster, place.pod)
	n := r.cluster.Node(place.node)
	fits := n != nil && !c.VolumesFit(n).Refused()
	var assigned map[string]*corev1.PersistentVolume
	if fits {
		assigned, fits = c.Assign(n)
	}
	if fits {
		r.cluster.Choose(place.pod, chosen(place.pod, assigned))
	}
	ready, failed := !place.devices, error(nil)
	if place.devices {
		ready, failed = r.ready(place)
	}
	if fits && len(c.Open()) == 0 && ready {
		delete(r.reserved, place.entry.Key)
	}
	r.mu.Unlock()
	if !fits {
		return errVolumeTaken
	}
	if failed != nil {
		r.observeDeviceWait(place, "failed")
		return failed
	}
	for _, open := range c.Open() {
		if err := r.requestBinding(ctx, open, assigned[open.Name], place); err != nil {
			return err
		}
	}
	if len(c.Open()) > 0 || !ready {
		return nil
	}
	r.observeDeviceWait(place, "success")
	return r.bind(ctx, place.entry, place.pod, place.node, r.deps.Clock.Now())
}

// chosen maps the names of assigned volumes to the keys of their claims; assigned maps names of claims to volumes.
func chosen(p *cluster.Pod, assigned map[string]*corev1.PersistentVolume) map[string]string {
	volumes := map[string]string{}
	for name, v := range assigned {
		volumes[v.Name] = p.Namespace + "/" + name
	}
	return volumes
}

func (r *run) requestBinding(ctx context.Context, c rules.OpenClaim, v *corev1.PersistentVolume,
	place *reservation) error {
	if v == nil {
		r.mu.Lock()
		told := place.selected[c.UID]
		r.mu.Unlock()
		_, err := client.Update(ctx, r.deps.Client, c.PersistentVolumeClaim, "",
			func(cur *corev1.PersistentVolumeClaim) error {
				if cur.UID != c.UID {
					return errVolumeTaken
				}
				if told && cur.Annotations[claim.SelectedNode] == "" { // the provisioner has removed it
					return fmt.Errorf("%w for PVC %q", errProvisioning, c.Name)
				}
				metav1.SetMetaDataAnnotation(&cur.ObjectMeta, claim.SelectedNode, place.node)
				return nil
			})
		if err == nil {
			r.mu.Lock()
			place.selected[c.UID] = true
			r.mu.Unlock()
		}
		return err
	}
	_, err := client.Update(ctx, r.deps.Client, v, "", func(cur *corev1.PersistentVolume) error {
		if cur.Spec.ClaimRef != nil && !claim.IsFor(cur, c.PersistentVolumeClaim) {
			return errVolumeTaken
		}
		if cur.Spec.ClaimRef == nil {
			metav1.SetMetaDataAnnotation(&cur.ObjectMeta, claim.BoundByController, "yes")
		}
		if cur.Spec.ClaimRef == nil || cur.Spec.ClaimRef.UID == "" {
			cur.Spec.ClaimRef = claim.Reference(c.PersistentVolumeClaim)
		}
		return nil
	})
	return err
}
