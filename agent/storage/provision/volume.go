package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
)

// volume sets a volume's finalizer according to its reclaim policy, and removes a released volume.
func (p *Provisioner) volume(ctx context.Context, v *corev1.PersistentVolume) error {
	if !p.isOurs(v) {
		return nil
	}
	deletes := v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	deleted := v.DeletionTimestamp != nil
	protected := slices.Contains(v.Finalizers, claim.ContentProtection)
	switch {
	case deletes && released(v):
		if err := p.removeContent(v); err != nil {
			p.Event(v, corev1.EventTypeWarning, "VolumeFailedDelete", "%v", err)
			return err
		}
		if !deleted {
			_, err := p.Client.Delete(ctx, client.RefOf(v),
				metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.UID))})
			if err != nil {
				return err
			}
		}
		return p.removeFinalizer(ctx, v)
	case deletes && !protected && !deleted:
		return p.changeFinalizers(ctx, v, func(all []string) []string { return append(all, claim.ContentProtection) })
	case !deletes && protected:
		return p.removeFinalizer(ctx, v)
	}
	return nil
}

// released reports whether the claim of the volume no longer exists. A volume that never had a claim is released when
// it is deleted.
func released(v *corev1.PersistentVolume) bool {
	return v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed ||
		v.DeletionTimestamp != nil && v.Status.Phase != corev1.VolumeBound
}

// movedSuffix is in the names of deep folders that mount.RemoveAll has moved up.
const movedSuffix = ".deep-"

// removeContent removes the folder of a volume once no pod on this node uses it.
func (p *Provisioner) removeContent(v *corev1.PersistentVolume) error {
	if ref := v.Spec.ClaimRef; ref != nil && p.Busy(ref.Namespace, ref.Name) {
		return fmt.Errorf("a pod on node %s still uses the volume", p.Node)
	}
	if err := p.checkFolder(v.Name); err != nil {
		return err
	}
	if err := p.Remove(p.path(v.Name)); err != nil {
		return err
	}
	entries, err := os.ReadDir(p.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries { // an interrupted removal left them
		if strings.HasPrefix(e.Name(), v.Name+movedSuffix) {
			err = errors.Join(err, p.Remove(p.path(e.Name())))
		}
	}
	return errors.Join(err, syncFolder(p.Dir))
}

// checkFolder returns an error if the name is not that of a folder in Dir, for instance because a file has replaced the
// folder.
func (p *Provisioner) checkFolder(name string) error {
	if name != "" && name != "." && name != ".." && !strings.ContainsRune(name, '/') {
		info, err := os.Lstat(p.path(name))
		if errors.Is(err, os.ErrNotExist) || err == nil && info.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is not a folder, so it is not removed", p.path(name))
}

func (p *Provisioner) removeFinalizer(ctx context.Context, v *corev1.PersistentVolume) error {
	return p.changeFinalizers(ctx, v, func(all []string) []string {
		return slices.DeleteFunc(all, func(f string) bool { return f == claim.ContentProtection })
	})
}

func (p *Provisioner) changeFinalizers(ctx context.Context, v *corev1.PersistentVolume,
	change func([]string) []string) error {
	_, err := client.Update(ctx, p.Client, v, "", func(cur *corev1.PersistentVolume) error {
		if cur.UID != v.UID {
			return errReplaced
		}
		cur.Finalizers = change(cur.Finalizers)
		return nil
	})
	return err
}
