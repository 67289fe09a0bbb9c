package csi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"monopod/agent/storage/tree"
	"monopod/apiserver/kit/claim"
)

// Volume is a volume of a pod. Either Persistent or Inline is set.
type Volume struct {
	Pod        *corev1.Pod
	Dir        string // the volume's folder below that of the pod
	Persistent *corev1.PersistentVolume
	Inline     *corev1.CSIVolumeSource
	Name       string // of the pod's volume
	ReadOnly   bool
}

func (v *Volume) id() id {
	if v.Persistent != nil {
		return id{v.Persistent.Spec.CSI.Driver, v.Persistent.Spec.CSI.VolumeHandle}
	}
	return id{v.Inline.Driver, fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(v.Pod.UID)+v.Name)))}
}

// specName is upstream's name of the volume.
func (v *Volume) specName() string {
	if v.Persistent != nil {
		return v.Persistent.Name
	}
	return v.Name
}

func (v *Volume) block() bool {
	return v.Persistent != nil && claim.Mode(v.Persistent.Spec.VolumeMode) == corev1.PersistentVolumeBlock
}

// target returns the path at which the volume is published.
func (m *Manager) target(v *Volume) string {
	if v.block() {
		return filepath.Join(m.cfg.Dir, "plugins", plugin, "volumeDevices", "publish", v.specName(), string(v.Pod.UID))
	}
	return filepath.Join(v.Dir, "mount")
}

// republishPeriod is the shortest time between two NodePublishVolume for a driver that requires republishing.
const republishPeriod = time.Minute

// SetUp makes the driver mount a volume for a pod, and returns where. While a driver is missing it returns an
// *ErrNoDriver. A volume that is up to date is returned without a call of the driver.
func (m *Manager) SetUp(ctx context.Context, v Volume) (path string, err error) {
	path = m.target(&v)
	if m.upToDate(&v) {
		return path, nil
	}
	object, err := m.object(ctx, v.id().driver)
	if err != nil {
		return "", err
	}
	if err := allowed(object, &v); err != nil {
		return "", err
	}
	attached := v.Persistent != nil && claim.NeedsAttach(object)
	dev, u := m.use(&v, attached)
	if err := dev.lock(ctx); err != nil {
		return "", err
	}
	defer dev.unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d, missing := m.driver(dev.driver)
	found := m.found(&v, dev, u)
	if !found || requiresRepublish(object) {
		if missing != nil {
			return "", missing
		}
		c := &call{manager: m, driver: d, object: object, volume: &v}
		if attached {
			if c.publishContext, err = m.awaitAttachment(ctx, dev); err != nil {
				return "", err
			}
		}
		if err := c.stage(ctx, dev); err != nil {
			return "", err
		}
		if err := c.publish(ctx, dev, path); err != nil {
			return "", err
		}
	}
	if !u.published {
		if err := v.applyGroup(d, object, path, found); err != nil {
			return "", err
		}
	}
	first := m.published(u, object)
	if first && !v.ReadOnly && v.Persistent != nil && missing == nil { // it may have been expanded while no pod used it
		if err := m.expand(ctx, d, &v, true); err != nil {
			m.cfg.Log.Warn("failed to expand a CSI volume", zap.String("volume", v.specName()), zap.Error(err))
		}
	}
	return path, nil
}

func requiresRepublish(object *storagev1.CSIDriver) bool {
	return object.Spec.RequiresRepublish != nil && *object.Spec.RequiresRepublish
}

// applyGroup applies the pod's fsGroup to the files of a volume, if the driver does not do that. If the volume was found
// mounted, it continues what an earlier process may not have finished.
func (v *Volume) applyGroup(d *driver, object *storagev1.CSIDriver, path string, found bool) error {
	group := fsGroup(v.Pod)
	if group == nil || v.ReadOnly || !v.groupApplies(object) ||
		d != nil && d.has(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
		return nil
	}
	policy := v.Pod.Spec.SecurityContext.FSGroupChangePolicy
	if found {
		policy = new(corev1.FSGroupChangeOnRootMismatch)
	}
	return tree.IgnoreRights(tree.ApplyFSGroup(path, group, false, policy))
}

// upToDate reports whether the volume is published and need not be published again now.
func (m *Manager) upToDate(v *Volume) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.volumes[v.id()]
	if d == nil || d.users[v.Dir] == nil {
		return false
	}
	u := d.users[v.Dir]
	return u.published && (u.republish.IsZero() || m.cfg.Clock.Now().Before(u.republish))
}

// found reports whether an earlier process has published the volume.
func (m *Manager) found(v *Volume, d *device, u *user) bool {
	m.mu.Lock()
	known := u.published
	m.mu.Unlock()
	if known || v.block() {
		return false
	}
	r, err := m.load(v.Dir)
	if err != nil || r == nil || r.id() != d.id {
		return false
	}
	mounted, err := m.mounted(r)
	return err == nil && mounted
}

// published records that the volume is published; first reports whether it was not before.
func (m *Manager) published(u *user, object *storagev1.CSIDriver) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, u.published = !u.published, true
	if requiresRepublish(object) {
		u.republish = m.cfg.Clock.Now().Add(republishPeriod)
	}
	return first
}

// allowed returns why the driver's CSIDriver does not allow the volume; the texts are upstream's.
func allowed(object *storagev1.CSIDriver, v *Volume) error {
	mode := storagev1.VolumeLifecyclePersistent
	if v.Inline != nil {
		mode = storagev1.VolumeLifecycleEphemeral
		if object.Name == "" {
			return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, v.Inline.Driver)
		}
	}
	if object.Name == "" || slices.Contains(object.Spec.VolumeLifecycleModes, mode) ||
		len(object.Spec.VolumeLifecycleModes) == 0 && v.Inline == nil {
		return nil
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, object.Name,
		object.Spec.VolumeLifecycleModes)
}

// groupApplies reports whether the pod's fsGroup is to be applied to the volume's files.
func (v *Volume) groupApplies(object *storagev1.CSIDriver) bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if p := object.Spec.FSGroupPolicy; p != nil {
		policy = *p
	}
	switch {
	case v.block() || policy == storagev1.NoneFSGroupPolicy:
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	case v.Inline != nil:
		return v.Inline.FSType != nil && *v.Inline.FSType != ""
	}
	once := func(mode corev1.PersistentVolumeAccessMode) bool {
		return mode == corev1.ReadWriteOnce || mode == corev1.ReadWriteOncePod
	}
	return v.Persistent.Spec.CSI.FSType != "" && slices.ContainsFunc(v.Persistent.Spec.AccessModes, once)
}

func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// stage makes the driver stage a PersistentVolume, if it does that and has not done it for this process.
func (c *call) stage(ctx context.Context, dev *device) error {
	m, v := c.manager, c.volume
	if v.Persistent == nil || !c.driver.has(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		return nil
	}
	dir := m.stageDir(dev.id)
	r := &record{Driver: dev.driver, Handle: dev.handle, Volume: v.specName(), Target: filepath.Join(dir, "globalmount"),
		Block: v.block(), Attach: dev.attached, Boot: m.cfg.Boot}
	c.stagingPath = m.visible(c.driver, r.Target)
	m.mu.Lock()
	known := dev.known
	m.mu.Unlock()
	if known {
		return nil
	}
	secrets, err := c.secrets(ctx, v.Persistent.Spec.CSI.NodeStageSecretRef)
	if err != nil {
		return fmt.Errorf("NodeStageSecretRef: %w", err)
	}
	if err := r.save(dir); err != nil {
		return err
	}
	m.mu.Lock()
	dev.staged = r
	m.mu.Unlock()
	if err := os.MkdirAll(r.Target, 0o750); err != nil {
		return err
	}
	_, err = c.driver.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: dev.handle, PublishContext: c.publishContext, StagingTargetPath: c.stagingPath,
		VolumeCapability: c.capability(), Secrets: secrets, VolumeContext: v.Persistent.Spec.CSI.VolumeAttributes,
	})
	if err != nil {
		return fmt.Errorf("MountDevice failed for volume %q : %w", v.specName(), err)
	}
	m.mu.Lock()
	dev.known = true
	m.mu.Unlock()
	return nil
}

// publish makes the driver publish the volume at target.
func (c *call) publish(ctx context.Context, dev *device, target string) error {
	m, v := c.manager, c.volume
	r := &record{Driver: dev.driver, Handle: dev.handle, Volume: v.specName(), Target: target, Block: v.block(),
		Attach: dev.attached, Boot: m.cfg.Boot}
	request := &csi.NodePublishVolumeRequest{
		VolumeId: dev.handle, PublishContext: c.publishContext, StagingTargetPath: c.stagingPath,
		TargetPath: m.visible(c.driver, target), VolumeCapability: c.capability(), Readonly: v.ReadOnly,
	}
	if err := c.complete(ctx, request); err != nil {
		return err
	}
	if err := r.save(v.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	_, err := c.driver.node.NodePublishVolume(ctx, request)
	return err
}
