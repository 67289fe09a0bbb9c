package provision

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// nameFor returns the name of a claim's volume, which depends only on the claim.
func nameFor(c *corev1.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

// mustProvision reports whether this provisioner must create a volume for the claim.
func (p *Provisioner) mustProvision(c *corev1.PersistentVolumeClaim) bool {
	selected := c.Annotations[claim.SelectedNode]
	return c.Annotations[claim.StorageProvisioner] == claim.Provisioner && c.Spec.VolumeName == "" &&
		c.DeletionTimestamp == nil && (selected == "" || selected == p.Node)
}

// mustExpand reports whether the claim requests more than its volume has.
func mustExpand(c *corev1.PersistentVolumeClaim) bool {
	request, capacity := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	return c.Status.Phase == corev1.ClaimBound && request.Cmp(capacity) > 0
}

// provision creates a volume, or reports why it does not.
func (p *Provisioner) provision(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	class, err := client.Get[*storagev1.StorageClass](ctx, p.Client, "", claim.Class(c))
	if err != nil || class.Provisioner != claim.Provisioner ||
		claim.WaitsForConsumer(class) && c.Annotations[claim.SelectedNode] == "" {
		return err // the persistentvolume controller reports a missing class
	}
	if _, err := client.Get[*corev1.PersistentVolume](ctx, p.Client, "", nameFor(c)); !apierrors.IsNotFound(err) {
		return err // the volume exists, and will be bound
	}
	t := follow.KeyOf(c)
	if why := unsupported(c, class); why != "" {
		if p.reported[t] != string(c.UID)+why {
			p.reportFailure(c, why)
		}
		p.reported[t] = string(c.UID) + why
		return nil
	}
	delete(p.reported, t)
	p.Event(c, corev1.EventTypeNormal, "Provisioning", "External provisioner is provisioning volume for claim %q",
		t.String())
	if err := p.create(ctx, c, class); err != nil {
		p.reportFailure(c, err.Error())
		return err
	}
	p.Event(c, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", nameFor(c))
	return nil
}

func (p *Provisioner) reportFailure(c *corev1.PersistentVolumeClaim, why string) {
	p.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %s",
		claim.Class(c), why)
}

// unsupported returns the reason why a folder on the node cannot satisfy the claim or its class; empty: it can.
func unsupported(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) string {
	switch {
	case claim.Mode(c.Spec.VolumeMode) == corev1.PersistentVolumeBlock:
		return claim.Provisioner + " makes folders, not block devices"
	case c.Spec.Selector != nil:
		return "claim.spec.selector is not supported"
	case c.Spec.DataSourceRef != nil:
		return "claim.spec.dataSource and dataSourceRef are not supported"
	case c.Spec.VolumeAttributesClassName != nil && *c.Spec.VolumeAttributesClassName != "":
		return "claim.spec.volumeAttributesClassName is not supported"
	case len(class.Parameters) > 0:
		return "the storage class has parameters, and " + claim.Provisioner + " knows none"
	case len(class.MountOptions) > 0:
		return "the storage class has mountOptions, which are not supported: a folder is not mounted"
	}
	return ""
}

// create creates the folder, then the object. After an interruption, the next attempt uses the same folder.
func (p *Provisioner) create(ctx context.Context, c *corev1.PersistentVolumeClaim,
	class *storagev1.StorageClass) error {
	if err := p.createFolder(nameFor(c)); err != nil {
		return err
	}
	_, err := p.Client.Create(ctx, p.object(c, class))
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Remove the folder if another node has created the volume first.
	v, err := client.Get[*corev1.PersistentVolume](ctx, p.Client, "", nameFor(c))
	if err != nil || p.isOurs(v) {
		return err
	}
	err = os.Remove(p.path(nameFor(c))) // fails if it is not empty
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// createFolder creates a folder that every user may write to, because the user of the volume is not known; fsGroup may
// change that. It does not change a folder with content.
func (p *Provisioner) createFolder(name string) error {
	err := os.Mkdir(p.path(name), 0o777)
	if errors.Is(err, fs.ErrExist) {
		var entries []os.DirEntry
		if entries, err = os.ReadDir(p.path(name)); err == nil && len(entries) > 0 {
			return nil
		}
	}
	if err == nil {
		err = os.Chmod(p.path(name), 0o777) // regardless of the umask
	}
	return errors.Join(err, syncFolder(p.Dir))
}

// syncFolder flushes the entries of a folder to the disk.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (p *Provisioner) object(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.PersistentVolume {
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	request := c.Spec.Resources.Requests[corev1.ResourceStorage]
	v := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: nameFor(c),
			Annotations: map[string]string{claim.ProvisionedBy: claim.Provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: request},
			AccessModes:                   slices.Clone(c.Spec.AccessModes),
			ClaimRef:                      claim.Reference(c),
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              class.Name,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			NodeAffinity:                  p.affinity(),
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: p.path(nameFor(c))},
			},
		},
	}
	if policy == corev1.PersistentVolumeReclaimDelete {
		v.Finalizers = []string{claim.ContentProtection}
	}
	return v
}

// affinity returns the affinity to this node by its name label.
func (p *Provisioner) affinity() *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{p.Node},
		}},
	}}}}
}

// expand sets the capacity of a volume to its claim's request. Only the API changes: the folder can use the whole disk.
func (p *Provisioner) expand(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	v, err := client.Get[*corev1.PersistentVolume](ctx, p.Client, "", c.Spec.VolumeName)
	if err != nil || !p.isOurs(v) || !claim.IsFor(v, c) {
		return err
	}
	size := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if _, err := client.Update(ctx, p.Client, v, "", func(v *corev1.PersistentVolume) error {
		if capacity := v.Spec.Capacity[corev1.ResourceStorage]; capacity.Cmp(size) < 0 {
			v.Spec.Capacity[corev1.ResourceStorage] = size
		}
		return nil
	}); err != nil {
		return err
	}
	_, err = client.Update(ctx, p.Client, c, "status", func(cur *corev1.PersistentVolumeClaim) error {
		if cur.UID != c.UID {
			return errReplaced
		}
		cur.Status.Capacity[corev1.ResourceStorage] = size
		cur.Status.Conditions = slices.DeleteFunc(cur.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimResizing ||
				c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		})
		return nil
	})
	if err == nil {
		p.Event(c, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded")
	}
	return err
}
