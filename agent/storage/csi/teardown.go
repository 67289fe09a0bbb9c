package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
)

// TearDown makes the drivers unpublish the volumes of a pod, whose folder is dir and whose containers have ended. It
// continues after a failure. Volumes that no pod of the node uses any more are unstaged in the background.
func (m *Manager) TearDown(ctx context.Context, dir string) error {
	volumes := filepath.Join(dir, "volumes", podFolder)
	entries, err := os.ReadDir(volumes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if err := m.tearDown(ctx, filepath.Join(volumes, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("UnmountVolume.TearDown failed for volume %q : %w", e.Name(), err))
		}
	}
	if len(errs) == 0 {
		m.forget(types.UID(filepath.Base(dir)))
	}
	return errors.Join(errs...)
}

// forget removes a pod from the users of all volumes, also of those that were never published.
func (m *Manager) forget(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for v, d := range m.volumes {
		for dir, u := range d.users {
			if u.pod == pod {
				m.leave(d, dir)
			}
		}
		if len(d.users) == 0 && d.staged == nil && (!d.attached || !m.begun) {
			delete(m.volumes, v)
		}
	}
	m.cfg.Tokens.Forget(pod)
}

// leave removes a user of a device. mu must be held.
func (m *Manager) leave(d *device, dir string) {
	delete(d.users, dir)
	if len(d.users) == 0 {
		m.wake(key{idle: d.id})
	}
}

func (m *Manager) tearDown(ctx context.Context, dir string) error {
	r, err := m.load(dir)
	if err != nil || r == nil { // nothing was published, or nobody knows by whom: the caller unmounts what is there
		return err
	}
	m.mu.Lock()
	dev := m.device(r.id())
	m.mu.Unlock()
	if err := dev.lock(ctx); err != nil {
		return err
	}
	defer dev.unlock()
	err = m.undo(ctx, r, func(ctx context.Context, d *driver) error {
		_, err := d.node.NodeUnpublishVolume(ctx,
			&csi.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: m.visible(d, r.Target)})
		return err
	})
	if err != nil {
		return err
	}
	if r.Block { // the folder of the PersistentVolume's devices; other pods may have one, too
		_ = os.Remove(filepath.Dir(r.Target))
	}
	if err := r.remove(dir); err != nil {
		return err
	}
	m.mu.Lock()
	m.leave(dev, dir)
	m.mu.Unlock()
	return nil
}

// undo calls the driver of a record, and removes its target. Without the driver it succeeds if nothing is mounted
// there.
func (m *Manager) undo(ctx context.Context, r *record, do func(context.Context, *driver) error) error {
	d, missing := m.driver(r.Driver)
	if missing == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := do(ctx, d); err != nil {
			return err
		}
	}
	mounted, err := m.mounted(r)
	switch {
	case err != nil:
		return err
	case missing != nil && (mounted || r.Block && r.Boot == m.cfg.Boot):
		return fmt.Errorf("only its driver can unmount the volume: %w", missing)
	case mounted:
		return fmt.Errorf("driver %s says that it has unmounted %s, but something is still mounted there", r.Driver, r.Target)
	}
	return removeEmpty(r.Target)
}

// unstage makes the driver unstage a volume that no pod of the node uses any more. After that the volume may be
// detached.
func (m *Manager) unstage(ctx context.Context, v id) error {
	m.mu.Lock()
	dev := m.volumes[v]
	m.mu.Unlock()
	if dev == nil {
		return nil
	}
	if err := dev.lock(ctx); err != nil {
		return err
	}
	defer dev.unlock()
	m.mu.Lock()
	r, used := dev.staged, len(dev.users) > 0
	if !used {
		dev.known = false
	}
	m.mu.Unlock()
	if used {
		return nil
	}
	if r != nil {
		err := m.undo(ctx, r, func(ctx context.Context, d *driver) error {
			_, err := d.node.NodeUnstageVolume(ctx,
				&csi.NodeUnstageVolumeRequest{VolumeId: r.Handle, StagingTargetPath: m.visible(d, r.Target)})
			return err
		})
		if missing := (*ErrNoDriver)(nil); errors.As(err, &missing) {
			return nil // its registration wakes this key
		}
		if err != nil {
			return fmt.Errorf("UnmountDevice failed for volume %q : %w", r.Volume, err)
		}
		if err := r.remove(m.stageDir(v)); err != nil {
			return err
		}
	}
	m.mu.Lock()
	dev.staged = nil
	if len(dev.users) == 0 {
		delete(m.volumes, v)
	}
	m.mu.Unlock()
	if dev.attached {
		return m.reportInUse(ctx)
	}
	return nil
}
