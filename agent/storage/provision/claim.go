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

// nameFor returns the name of a claim's volume, which is always the same.
func nameFor(c *corev1.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

// concerns reports whether a claim may need a volume or an expansion.
func (p *Provisioner) concerns(c *corev1.PersistentVolumeClaim) bool {
	return p.asked(c) || c.Spec.VolumeName == nameFor(c) && wantsMore(c)
}

// asked reports whether this provisioner must create a volume for the claim.
func (p *Provisioner) asked(c *corev1.PersistentVolumeClaim) bool {
	selected := c.Annotations[claim.SelectedNode]
	return c.Annotations[claim.StorageProvisioner] == claim.Provisioner && c.Spec.VolumeName == "" &&
		c.DeletionTimestamp == nil && (selected == "" || selected == p.Node)
}

func wantsMore(c *corev1.PersistentVolumeClaim) bool {
	wants, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	return c.Status.Phase == corev1.ClaimBound && wants.Cmp(has) > 0
}

func (p *Provisioner) claim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	switch {
	case p.asked(c):
		return p.provide(ctx, c)
	case wantsMore(c):
		return p.expand(ctx, c)
	}
	return nil
}

// provide creates a volume, or reports why it does not.
func (p *Provisioner) provide(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	class, err := client.Get[*storagev1.StorageClass](ctx, p.Client, "", claim.Class(c))
	if err != nil || class.Provisioner != claim.Provisioner ||
		claim.Waits(class) && c.Annotations[claim.SelectedNode] == "" {
		return err // the persistentvolume controller reports a missing class
	}
	if _, err := client.Get[*corev1.PersistentVolume](ctx, p.Client, "", nameFor(c)); !apierrors.IsNotFound(err) {
		return err // it exists, and will be bound
	}
	t := follow.KeyOf(c)
	if why := problem(c, class); why != "" {
		if p.refused[t] != string(c.UID)+why {
			p.refuse(c, why)
		}
		p.refused[t] = string(c.UID) + why
		return nil
	}
	delete(p.refused, t)
	p.Event(c, corev1.EventTypeNormal, "Provisioning", "External provisioner is provisioning volume for claim %q",
		t.String())
	if err := p.make(ctx, c, class); err != nil {
		p.refuse(c, err.Error())
		return err
	}
	p.Event(c, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", nameFor(c))
	return nil
}

func (p *Provisioner) refuse(c *corev1.PersistentVolumeClaim, why string) {
	p.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %s",
		claim.Class(c), why)
}

// problem returns what the claim or its class requests that a folder on the node cannot provide.
func problem(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) string {
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

// make creates the folder, then the object. If it is interrupted, the next attempt uses the same
// folder.
func (p *Provisioner) make(ctx context.Context, c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if err := p.folder(nameFor(c)); err != nil {
		return err
	}
	_, err := p.Client.Create(ctx, p.object(c, class))
	if apierrors.IsAlreadyExists(err) {
		return p.yield(ctx, nameFor(c))
	}
	return err
}

// yield removes the folder of a volume that another node has created first.
func (p *Provisioner) yield(ctx context.Context, name string) error {
	v, err := client.Get[*corev1.PersistentVolume](ctx, p.Client, "", name)
	if err != nil || p.mine(v) {
		return err
	}
	err = os.Remove(p.path(name)) // empty, or not ours
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// folder creates a folder that every user may write to, because its user is not known; fsGroup may
// change that. It does not change a folder with content.
func (p *Provisioner) folder(name string) error {
	err := os.Mkdir(p.path(name), 0o777)
	if errors.Is(err, fs.ErrExist) {
		var has []os.DirEntry
		if has, err = os.ReadDir(p.path(name)); err == nil && len(has) > 0 {
			return nil
		}
	}
	if err == nil {
		err = os.Chmod(p.path(name), 0o777) // whatever the umask
	}
	return errors.Join(err, syncFolder(p.Dir))
}

// syncFolder flushes the names in a folder to the disk.
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
	v := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: nameFor(c),
			Annotations: map[string]string{claim.ProvisionedBy: claim.Provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   slices.Clone(c.Spec.AccessModes),
			ClaimRef:                      claim.Reference(c),
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              class.Name,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			NodeAffinity:                  p.affinity(),
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: p.path(nameFor(c))}},
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

// expand sets the capacity of a volume to its claim's request: the folder can use the whole disk,
// so only the API changes.
func (p *Provisioner) expand(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	v, err := client.Get[*corev1.PersistentVolume](ctx, p.Client, "", c.Spec.VolumeName)
	if err != nil || !p.mine(v) || !claim.IsFor(v, c) {
		return err
	}
	size := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if _, err := client.Update(ctx, p.Client, v, "", func(v *corev1.PersistentVolume) error {
		if has := v.Spec.Capacity[corev1.ResourceStorage]; has.Cmp(size) < 0 {
			v.Spec.Capacity[corev1.ResourceStorage] = size
		}
		return nil
	}); err != nil {
		return err
	}
	_, err = client.Update(ctx, p.Client, c, "status", func(cur *corev1.PersistentVolumeClaim) error {
		if cur.UID != c.UID {
			return errAnother
		}
		cur.Status.Capacity[corev1.ResourceStorage] = size
		cur.Status.Conditions = slices.DeleteFunc(cur.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimResizing || c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		})
		return nil
	})
	if err == nil {
		p.Event(c, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded")
	}
	return err
}
