package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

// nodeIDs is the annotation of a Node with the IDs that its drivers gave it.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// writeNode writes what a driver says about this node: into its CSINode, and its topology and ID into the Node. It
// removes a driver that is not registered; the topology labels stay, because volumes may need them.
func (m *Manager) writeNode(ctx context.Context, name string) error {
	m.node.Lock()
	defer m.node.Unlock()
	d, _ := m.driver(name)
	node, err := m.writeLabels(ctx, name, d)
	if err != nil {
		return fmt.Errorf("write labels and ID to the Node: %w", err)
	}
	if err := m.writeCSINode(ctx, node, name, d); err != nil {
		return fmt.Errorf("write the CSINode: %w", err)
	}
	return nil
}

func (m *Manager) writeLabels(ctx context.Context, name string, d *driver) (*corev1.Node, error) {
	topology := map[string]string{}
	if d != nil {
		topology = d.info.GetAccessibleTopology().GetSegments()
	}
	return client.Update(ctx, m.cfg.Client, m.cfg.Node(), "", func(n *corev1.Node) error {
		for label, value := range topology {
			if had, ok := n.Labels[label]; ok && had != value {
				return fmt.Errorf("the topology label %s is %q, and the driver says %q: remove the label from the node if the "+
					"driver is right", label, had, value)
			}
			metav1.SetMetaDataLabel(&n.ObjectMeta, label, value)
		}
		ids := map[string]string{}
		if text := n.Annotations[nodeIDs]; text != "" {
			if err := json.Unmarshal([]byte(text), &ids); err != nil {
				return fmt.Errorf("annotation %s: %w", nodeIDs, err)
			}
		}
		if delete(ids, name); d != nil {
			ids[name] = d.info.GetNodeId()
		}
		if len(ids) == 0 {
			delete(n.Annotations, nodeIDs)
			return nil
		}
		text, err := json.Marshal(ids)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, nodeIDs, string(text))
		return err
	})
}

func (m *Manager) writeCSINode(ctx context.Context, node *corev1.Node, name string, d *driver) error {
	set := func(d *driver) func(*storagev1.CSINode) error {
		return func(n *storagev1.CSINode) error {
			at := slices.IndexFunc(n.Spec.Drivers, func(e storagev1.CSINodeDriver) bool { return e.Name == name })
			if at < 0 {
				at = len(n.Spec.Drivers)
			} else {
				n.Spec.Drivers = slices.Delete(n.Spec.Drivers, at, at+1)
			}
			if d != nil {
				n.Spec.Drivers = slices.Insert(n.Spec.Drivers, at, d.entry())
			}
			return nil
		}
	}
	n := &storagev1.CSINode{
		TypeMeta: metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "CSINode"},
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}},
	}
	_, err := client.Update(ctx, m.cfg.Client, n, "", set(d))
	switch {
	case apierrors.IsNotFound(err) && d == nil:
		return nil
	case apierrors.IsNotFound(err):
		_ = set(d)(n)
		_, err = m.cfg.Client.Create(ctx, n)
	case apierrors.IsInvalid(err): // the entry of a driver cannot be changed, only be removed and added
		if _, err = client.Update(ctx, m.cfg.Client, n, "", set(nil)); err == nil {
			_, err = client.Update(ctx, m.cfg.Client, n, "", set(d))
		}
	}
	return err
}

// entry returns the driver's entry of a CSINode.
func (d *driver) entry() storagev1.CSINodeDriver {
	e := storagev1.CSINodeDriver{Name: d.name, NodeID: d.info.GetNodeId(),
		TopologyKeys: slices.Sorted(maps.Keys(d.info.GetAccessibleTopology().GetSegments()))}
	if most := d.info.GetMaxVolumesPerNode(); most > 0 {
		e.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(min(most, 1<<31-1)))}
	}
	return e
}

// reportInUse writes which volumes of drivers that need attachments this node uses. It returns when that is stored: an
// attachment of a volume that is in use is not removed.
func (m *Manager) reportInUse(ctx context.Context) error {
	m.node.Lock()
	defer m.node.Unlock()
	var all []corev1.UniqueVolumeName
	m.mu.Lock()
	for v, d := range m.volumes {
		if d.attached && (len(d.users) > 0 || d.staged != nil) {
			all = append(all, v.unique())
		}
	}
	m.mu.Unlock()
	slices.Sort(all)
	_, err := client.Update(ctx, m.cfg.Client, m.cfg.Node(), "status", func(n *corev1.Node) error {
		n.Status.VolumesInUse = all
		return nil
	})
	return err
}

// ErrAttaching is the error while the volume is not attached to this node yet; the attach-detach controller reports
// what goes wrong.
var ErrAttaching = errors.New("the volume is not yet attached to this node")

// awaitAttachment returns what the driver's controller said about the attachment of a volume to this node, or
// ErrAttaching.
func (m *Manager) awaitAttachment(ctx context.Context, d *device) (map[string]string, error) {
	if err := m.reportInUse(ctx); err != nil {
		return nil, fmt.Errorf("report that volume %s is in use: %w", d.handle, err)
	}
	node, err := client.Get[*corev1.Node](ctx, m.cfg.Client, "", m.cfg.Node().Name)
	if err != nil {
		return nil, err
	}
	name := d.attachment(node.Name)
	a, err := client.Get[*storagev1.VolumeAttachment](ctx, m.cfg.Client, "", name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if a != nil && err == nil && a.DeletionTimestamp == nil && a.Status.AttachError != nil {
		return nil, fmt.Errorf("%w: %s", ErrAttaching, a.Status.AttachError.Message)
	}
	listed := slices.ContainsFunc(node.Status.VolumesAttached,
		func(v corev1.AttachedVolume) bool { return v.Name == d.unique() })
	if err != nil || !listed || !a.Status.Attached || a.DeletionTimestamp != nil {
		return nil, ErrAttaching
	}
	return a.Status.AttachmentMetadata, nil
}
