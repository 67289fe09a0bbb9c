package csi

import (
	"context"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// onClaim wakes a claim whose volume has to be expanded on its node.
func (m *Manager) onClaim(_, new client.Object) []key {
	c, _ := new.(*corev1.PersistentVolumeClaim)
	if c == nil || !mustExpand(c) {
		return nil
	}
	return []key{{claim: follow.KeyOf(c)}}
}

// mustExpand reports whether the external resizer has expanded the volume and waits for the node.
func mustExpand(c *corev1.PersistentVolumeClaim) bool {
	switch c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
		return true
	case "":
		return slices.ContainsFunc(c.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue
		})
	}
	return false
}

// expandClaim expands the volume of a claim, if a pod of this node has it mounted.
func (m *Manager) expandClaim(ctx context.Context, of follow.Key) error {
	m.mu.Lock()
	var dev *device
	var v *Volume
	for _, d := range m.volumes {
		for _, u := range d.users {
			if u.published && u.volume != nil && !u.volume.ReadOnly && u.volume.isOf(of) {
				dev, v = d, u.volume
			}
		}
	}
	m.mu.Unlock()
	if dev == nil {
		return nil
	}
	d, err := m.driver(dev.driver)
	if err != nil {
		return err
	}
	if err := dev.lock(ctx); err != nil {
		return err
	}
	defer dev.unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.expand(ctx, d, v, false)
}

// isOf reports whether the volume is that of a claim.
func (v *Volume) isOf(c follow.Key) bool {
	if v.Persistent == nil {
		return false
	}
	ref := v.Persistent.Spec.ClaimRef
	return ref != nil && ref.Namespace == c.Namespace && ref.Name == c.Name
}

// expand makes the driver expand a published volume to the size of its PersistentVolume, if its claim waits for that,
// and records the new size in the claim. At its first mount a claim also waits if its capacity is smaller.
func (m *Manager) expand(ctx context.Context, d *driver, v *Volume, first bool) error {
	pv, err := client.Get[*corev1.PersistentVolume](ctx, m.cfg.Client, "", v.Persistent.Name)
	if err != nil || pv.Spec.ClaimRef == nil {
		return err
	}
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, m.cfg.Client, pv.Spec.ClaimRef.Namespace,
		pv.Spec.ClaimRef.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	behind := first && c.Status.Phase == corev1.ClaimBound && c.Status.Capacity.Storage().Cmp(size) < 0
	if !behind && !mustExpand(c) {
		return nil
	}
	if d.has(csi.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		if c, err = m.setExpansion(ctx, c, corev1.PersistentVolumeClaimNodeResizeInProgress, ""); err != nil {
			return err
		}
		if err := m.nodeExpand(ctx, d, v, size.Value()); err != nil {
			return m.expansionFailed(ctx, c, v, size.Value(), err)
		}
	}
	_, err = client.Update(ctx, m.cfg.Client, c, "status", func(c *corev1.PersistentVolumeClaim) error {
		c.Status.Capacity[corev1.ResourceStorage] = size
		delete(c.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
		c.Status.Conditions = slices.DeleteFunc(c.Status.Conditions, isExpansion)
		return nil
	})
	if err == nil {
		m.cfg.Event(v.Pod, corev1.EventTypeNormal, "FileSystemResizeSuccessful",
			"MountVolume.NodeExpandVolume succeeded for volume %q", v.specName())
	}
	return err
}

func (m *Manager) nodeExpand(ctx context.Context, d *driver, v *Volume, size int64) error {
	c := &call{manager: m, driver: d, volume: v}
	secrets, err := c.secrets(ctx, v.Persistent.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return fmt.Errorf("NodeExpandSecretRef: %w", err)
	}
	_, err = d.node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: v.id().handle, VolumePath: m.visible(d, m.target(v)), StagingTargetPath: m.stagingPath(d, v.id()),
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: c.capability(), Secrets: secrets,
	})
	return err
}

// stagingPath returns the path at which the driver has staged the volume; empty: it was not staged.
func (m *Manager) stagingPath(d *driver, v id) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if dev := m.volumes[v]; dev != nil && dev.staged != nil {
		return m.visible(d, dev.staged.Target)
	}
	return ""
}

// expansionFailed records why an expansion failed; the error of an expansion that can never succeed is not returned.
func (m *Manager) expansionFailed(ctx context.Context, c *corev1.PersistentVolumeClaim, v *Volume, size int64,
	why error) error {
	m.cfg.Event(v.Pod, corev1.EventTypeWarning, "VolumeResizeFailed",
		"NodeExpandVolume failed for volume %q: %v", v.specName(), why)
	state := corev1.PersistentVolumeClaimNodeResizeInProgress
	if infeasible(why) || final(why) && c.Spec.Resources.Requests.Storage().Value() != size {
		state = corev1.PersistentVolumeClaimNodeResizeInfeasible
	}
	_, err := m.setExpansion(ctx, c, state, fmt.Sprintf("failed to expand pvc with %v", why))
	if state == corev1.PersistentVolumeClaimNodeResizeInfeasible && err == nil {
		return nil
	}
	return fmt.Errorf("expand volume %q: %w", v.specName(), why)
}

// infeasible reports whether an expansion can never succeed.
func infeasible(err error) bool {
	return slices.Contains([]codes.Code{codes.InvalidArgument, codes.OutOfRange, codes.NotFound}, status.Code(err))
}

// final reports whether a driver has ended a call (upstream isFinalError). If the user has meanwhile asked for another
// size, the resizer may then begin again.
func final(err error) bool {
	return !slices.Contains([]codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable,
		codes.ResourceExhausted, codes.Aborted, codes.Unknown}, status.Code(err))
}

// setExpansion sets the state of a claim's expansion, with a condition if there is an error.
func (m *Manager) setExpansion(ctx context.Context, c *corev1.PersistentVolumeClaim, state corev1.ClaimResourceStatus,
	failure string) (*corev1.PersistentVolumeClaim, error) {
	return client.Update(ctx, m.cfg.Client, c, "status", func(c *corev1.PersistentVolumeClaim) error {
		if c.Status.AllocatedResourceStatuses == nil {
			c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
		}
		c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = state
		if failure == "" {
			return nil
		}
		next := corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimNodeResizeError,
			Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(m.cfg.Clock.Now()), Message: failure}
		at := slices.IndexFunc(c.Status.Conditions,
			func(c corev1.PersistentVolumeClaimCondition) bool { return c.Type == next.Type })
		if at < 0 {
			c.Status.Conditions = append(c.Status.Conditions, next)
		} else {
			c.Status.Conditions[at] = next
		}
		return nil
	})
}

// isExpansion reports whether a condition is about the expansion of a volume.
func isExpansion(c corev1.PersistentVolumeClaimCondition) bool {
	return slices.Contains([]corev1.PersistentVolumeClaimConditionType{
		corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
	}, c.Type)
}
