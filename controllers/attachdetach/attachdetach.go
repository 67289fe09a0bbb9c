// Package attachdetach attaches the CSI volumes of pods to their nodes, and detaches them after the last pod has ended.
// It asks the driver's external-attacher by a VolumeAttachment.
//
// The node and the controller agree on a volume through the node's status, so that no volume is detached while the node
// uses it:
//
//   - The node lists a volume in volumesInUse before it waits for the volume in volumesAttached, and until it has
//     unmounted it.
//   - The controller lists a volume in volumesAttached once it is attached. Before it deletes the VolumeAttachment it
//     removes the volume from volumesAttached, in a write that fails if volumesInUse lists it.
//
// Everything the controller does can be repeated after a crash: what it wants follows from the pods, what it has done
// is in VolumeAttachments and in the status of nodes. While no PersistentVolume of a CSI driver exists, it only waits
// for one.
//
//   - attachdetach.go: what wakes a node
//   - decide.go: what must change, without I/O
//   - reconcile.go: reads the state of a node, and writes the changes
package attachdetach

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/podstate"
)

// Name is upstream's name of the controller.
const Name = "persistentvolume-attach-detach-controller"

// Component is the source of its events.
const Component = "attachdetach-controller"

// Config of the controller.
type Config struct {
	// DisableForceDetachOnTimeout is --disable-force-detach-on-timeout.
	DisableForceDetachOnTimeout bool
}

// Controller attaches and detaches volumes.
type Controller struct {
	deps    follow.Deps
	events  record.Eventer
	cfg     Config
	metrics *metrics
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller and registers its metrics.
func New(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	m, err := newMetrics(deps.Metrics.Registerer)
	return &Controller{deps: deps, events: events, cfg: cfg, metrics: m}, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.awaitVolume(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	r := &run{Controller: c, nodes: map[string]memory{}}
	c.metrics.reset()
	return follow.New(c.deps, follow.Config[string]{
		Name: Name,
		Sources: []follow.Source[string]{
			{Selector: client.Selector{Resource: client.Pods}, Keys: r.onPod},
			{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: r.onClaim},
			{Selector: client.Selector{Resource: client.Nodes}, Keys: follow.Plain(onNode)},
			{Selector: client.Selector{Resource: client.CSIDrivers}, Keys: r.onDriver},
			{Selector: client.Selector{Resource: client.VolumeAttachments}, Keys: r.onAttachment},
		},
		Reconcile: r.reconcile, // by one worker: no volume is attached to two nodes at a time
	}).Run(ctx)
}

// awaitVolume returns when there is a PersistentVolume of a CSI driver, or a VolumeAttachment, or ctx ends.
func (c *Controller) awaitVolume(ctx context.Context) error {
	attachments, _, err := c.deps.Client.List(ctx, client.Selector{Resource: client.VolumeAttachments})
	if err != nil || len(attachments) > 0 {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follow.Follower{Client: c.deps.Client, Clock: c.deps.Clock, Log: c.deps.Log, Name: Name}.Follow(ctx,
		client.Selector{Resource: client.PersistentVolumes}, follow.Handler{
			List: func(_ context.Context, all []client.Object) {
				if slices.ContainsFunc(all, isCSI) {
					cancel()
				}
			},
			Event: func(_ context.Context, _ watch.EventType, obj client.Object) {
				if isCSI(obj) {
					cancel()
				}
			},
		})
	return nil
}

func isCSI(obj client.Object) bool { return obj.(*corev1.PersistentVolume).Spec.CSI != nil }

// run is the state of one Run of the controller.
type run struct {
	*Controller
	nodes map[string]memory // only the worker uses it
}

// ended reports whether the pod no longer needs its volumes (upstream IsPodTerminated).
func ended(pod *corev1.Pod) bool {
	return podstate.Finished(pod) || pod.DeletionTimestamp != nil &&
		!slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
			pod.Status.EphemeralContainerStatuses), func(s corev1.ContainerStatus) bool {
			return s.State.Terminated == nil && s.State.Waiting == nil
		})
}

// onPod wakes the node on which a pod with CSI volumes begins or ends.
func (r *run) onPod(ctx context.Context, old, new client.Object) ([]string, error) {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	pod := is
	if pod == nil {
		pod = was
	}
	if pod.Spec.NodeName == "" || len(claim.AllOf(pod)) == 0 {
		return nil, nil
	}
	if is == nil || ended(is) {
		if was == nil || is != nil && ended(was) {
			return nil, nil
		}
		return r.ifAttached(ctx, pod.Spec.NodeName)
	}
	if was != nil && was.Spec.NodeName != "" {
		return nil, nil
	}
	volumes, err := r.volumesOf(ctx, is)
	if err != nil || len(volumes) == 0 {
		return nil, err
	}
	return []string{pod.Spec.NodeName}, nil
}

// ifAttached returns the node if it has VolumeAttachments.
func (r *run) ifAttached(ctx context.Context, node string) ([]string, error) {
	all, err := client.List[*storagev1.VolumeAttachment](ctx, r.deps.Client, client.Selector{})
	if slices.ContainsFunc(all, func(a *storagev1.VolumeAttachment) bool { return a.Spec.NodeName == node }) {
		return []string{node}, nil
	}
	return nil, err
}

// onClaim wakes the nodes of the pods of a claim that is bound to a CSI volume.
func (r *run) onClaim(ctx context.Context, old, new client.Object) ([]string, error) {
	was, _ := old.(*corev1.PersistentVolumeClaim)
	is, _ := new.(*corev1.PersistentVolumeClaim)
	if !bound(is) || bound(was) {
		return nil, nil
	}
	return r.nodesOf(ctx, is.Spec.VolumeName)
}

func bound(c *corev1.PersistentVolumeClaim) bool {
	return c != nil && c.Status.Phase == corev1.ClaimBound && c.Spec.VolumeName != ""
}

// nodesOf returns the nodes of the pods that use a CSI volume.
func (r *run) nodesOf(ctx context.Context, volume string) ([]string, error) {
	v, err := client.Get[*corev1.PersistentVolume](ctx, r.deps.Client, "", volume)
	if apierrors.IsNotFound(err) || err == nil && v.Spec.CSI == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pods, err := r.usersOf(ctx, v)
	var nodes []string
	for _, pod := range pods {
		nodes = append(nodes, pod.Spec.NodeName)
	}
	return nodes, err
}

// onNode wakes a node whose readiness, use of volumes, or taint out-of-service has changed.
func onNode(old, new client.Object) []string {
	was, _ := old.(*corev1.Node)
	is, _ := new.(*corev1.Node)
	switch {
	case is == nil:
		return []string{was.Name}
	case was != nil && podstate.NodeReady(was) == podstate.NodeReady(is) && outOfService(was) == outOfService(is) &&
		slices.Equal(was.Status.VolumesInUse, is.Status.VolumesInUse) &&
		slices.Equal(was.Status.VolumesAttached, is.Status.VolumesAttached):
		return nil
	}
	return []string{is.Name}
}

// onDriver wakes all nodes after a change of whether a driver's volumes are attached. Without CSIDriver they are.
func (r *run) onDriver(ctx context.Context, old, new client.Object) ([]string, error) {
	was, _ := old.(*storagev1.CSIDriver)
	is, _ := new.(*storagev1.CSIDriver)
	if claim.NeedsAttach(was) == claim.NeedsAttach(is) {
		return nil, nil
	}
	nodes, err := client.List[*corev1.Node](ctx, r.deps.Client, client.Selector{})
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names, err
}

// onAttachment wakes the node of a VolumeAttachment, and after its deletion the nodes that wait for the volume.
func (r *run) onAttachment(ctx context.Context, old, new client.Object) ([]string, error) {
	was, _ := old.(*storagev1.VolumeAttachment)
	is, _ := new.(*storagev1.VolumeAttachment)
	switch {
	case is == nil:
		keys := []string{was.Spec.NodeName}
		if v := was.Spec.Source.PersistentVolumeName; v != nil {
			waiting, err := r.nodesOf(ctx, *v)
			return append(keys, waiting...), err
		}
		return keys, nil
	case was != nil && was.DeletionTimestamp.IsZero() == is.DeletionTimestamp.IsZero() &&
		was.Status.Attached == is.Status.Attached &&
		equality.Semantic.DeepEqual(was.Status.AttachError, is.Status.AttachError):
		return nil, nil
	}
	return []string{is.Spec.NodeName}, nil
}
