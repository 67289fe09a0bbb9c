package registrar

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/podcidr"
)

// managedAttach is the annotation by which a kubelet leaves the attachment of volumes to a controller. Programs rely on
// it: flannel fails for a Node without annotations.
const managedAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// newNode returns the node for its first registration.
func (r *Registrar) newNode() *corev1.Node {
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: r.cfg.NodeName, Labels: r.labels(),
			Annotations: map[string]string{managedAttach: "true"}},
		Spec: corev1.NodeSpec{Taints: slices.Clone(r.cfg.Taints)},
	}
	node.Status.Capacity, node.Status.Allocatable = r.Resources()
	if r.cfg.OwnPodCIDRs != nil && r.cfg.OwnPodCIDRs() {
		node.Annotations[podcidr.Annotation] = podcidr.Self
	}
	return node
}

func (r *Registrar) labels() map[string]string {
	labels := map[string]string{
		corev1.LabelHostname: r.cfg.NodeName, corev1.LabelOSStable: r.info.OperatingSystem,
		corev1.LabelArchStable: r.info.Architecture,
	}
	maps.Copy(labels, r.cfg.Labels)
	return labels
}

// store writes the node's status to the API if it has changed or is due. It registers the node first, if necessary.
func (r *Registrar) store(ctx context.Context, status corev1.NodeStatus) error {
	stored, err := r.registered(ctx)
	if err != nil {
		return err
	}
	now := r.Clock.Now()
	due := r.written.IsZero() || now.Sub(r.written) >= r.cfg.StatusPeriod
	stamp(&status, &stored.Status, now)
	r.Offer(&status, &stored.Status, r.written.IsZero())
	if !due && unchanged(&stored.Status, &status) {
		return nil
	}
	next, err := client.Update(ctx, r.Client, stored, "status", func(cur *corev1.Node) error {
		stamp(&status, &cur.Status, now)
		status.Conditions = append(status.Conditions, foreignConditions(cur.Status.Conditions, status.Conditions)...)
		status.VolumesAttached, status.VolumesInUse = cur.Status.VolumesAttached, cur.Status.VolumesInUse
		r.Offer(&status, &cur.Status, r.written.IsZero())
		cur.Status = status
		return nil
	})
	if err != nil {
		return err
	}
	r.written = now
	r.setStored(next)
	r.recordConditionEvents(&stored.Status, &next.Status)
	if old, boot := stored.Status.NodeInfo.BootID, r.info.BootID; old != "" && old != boot {
		r.Event(corev1.EventTypeWarning, "Rebooted", "Node %s has been rebooted, boot id: %s", next.Name, boot)
	}
	return nil
}

// registered returns the node from the API, and registers it again if it was deleted.
func (r *Registrar) registered(ctx context.Context) (*corev1.Node, error) {
	node, err := client.Get[*corev1.Node](ctx, r.Client, "", r.cfg.NodeName)
	first := r.written.IsZero()
	if apierrors.IsNotFound(err) || err == nil && first {
		if node, err = r.register(ctx); err == nil && !first {
			r.written = time.Time{}
		}
	}
	if err != nil {
		return nil, err
	}
	// Set the ranges of the node's pods once, like upstream's node IPAM controller. A node keeps its ranges until it is
	// deleted.
	var ranges []string
	if r.cfg.PodCIDRs != nil && len(node.Spec.PodCIDRs) == 0 {
		ranges = r.cfg.PodCIDRs()
	}
	own := r.cfg.OwnPodCIDRs != nil && r.cfg.OwnPodCIDRs()
	if len(ranges) > 0 || own != (node.Annotations[podcidr.Annotation] == podcidr.Self) {
		node, err = client.Update(ctx, r.Client, node, "", func(cur *corev1.Node) error {
			if len(ranges) > 0 && len(cur.Spec.PodCIDRs) == 0 {
				cur.Spec.PodCIDR, cur.Spec.PodCIDRs = ranges[0], ranges
			}
			if !own {
				delete(cur.Annotations, podcidr.Annotation)
				return nil
			}
			metav1.SetMetaDataAnnotation(&cur.ObjectMeta, podcidr.Annotation, podcidr.Self)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("assign podCIDRs: %w", err)
		}
	}
	shown := node
	if r.written.IsZero() { // an earlier agent wrote the resources, perhaps with another configuration
		shown = node.DeepCopy()
		shown.Status.Capacity, shown.Status.Allocatable = r.Resources()
	}
	r.setStored(shown)
	return node, nil
}

// register creates the node, or sets the agent's labels on an existing one.
func (r *Registrar) register(ctx context.Context) (*corev1.Node, error) {
	created, err := r.Client.Create(ctx, r.newNode())
	if err == nil {
		r.Log.Info("node registered", zap.String("node", r.cfg.NodeName))
		return created.(*corev1.Node), nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("register node: %w", err)
	}
	return client.Update(ctx, r.Client, r.newNode(), "", func(cur *corev1.Node) error {
		if cur.Labels == nil {
			cur.Labels = map[string]string{}
		}
		maps.Copy(cur.Labels, r.labels())
		metav1.SetMetaDataAnnotation(&cur.ObjectMeta, managedAttach, "true")
		return nil
	})
}
