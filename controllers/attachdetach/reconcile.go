package attachdetach

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/component-helpers/storage/ephemeral"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
)

// reconcile brings the VolumeAttachments and volumesAttached of a node up to date.
func (r *run) reconcile(ctx context.Context, node string) (time.Duration, error) {
	v, err := r.read(ctx, node)
	if err != nil {
		return 0, err
	}
	p := decide(v, r.nodes[node], r.deps.Clock.Now(), r.cfg.DisableForceDetachOnTimeout)
	if err := r.write(ctx, v, p); err != nil {
		if errors.Is(err, errInUse) {
			err = nil // the node has begun to use a volume, which its watch event shows
		}
		return 0, owned.IgnoreGone(err) // watch events wake the node
	}
	if r.nodes[node] = p.memory; len(v.attachments) == 0 && len(v.wanted) == 0 {
		delete(r.nodes, node)
	}
	r.metrics.count(v)
	for _, e := range p.events {
		r.events.Eventf(e.pod, e.typ, e.reason, "%s", e.is)
	}
	return p.again, nil
}

// errInUse stops the detach of a volume that the node uses.
var errInUse = errors.New("the node uses the volume")

// write writes a plan.
func (r *run) write(ctx context.Context, v view, p plan) error {
	if v.node != nil {
		if err := r.listAttached(ctx, v.node, p); err != nil {
			return err
		}
	}
	for _, d := range p.detach {
		_, err := r.deps.Client.Delete(ctx, client.RefOf(d.VolumeAttachment),
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(d.UID))})
		if owned.IgnoreGone(err) != nil {
			return err
		}
		if err == nil && d.forced != "" {
			r.metrics.forced.WithLabelValues(d.forced).Inc()
			r.deps.Log.Warn("volume detached although its node has not unmounted it", zap.String("node", v.name),
				zap.String("volume", string(d.volume)), zap.String("reason", d.forced))
		}
	}
	for _, a := range p.create {
		if _, err := r.deps.Client.Create(ctx, a); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// listAttached updates the node's volumesAttached. It fails if the node uses a volume that is to be detached.
func (r *run) listAttached(ctx context.Context, node *corev1.Node, p plan) error {
	_, err := client.Update(ctx, r.deps.Client, node, "status", func(n *corev1.Node) error {
		n.UID = node.UID // conflicts with another node of the same name
		for _, d := range p.detach {
			if d.forced == "" && slices.Contains(n.Status.VolumesInUse, d.volume) {
				return errInUse
			}
		}
		n.Status.VolumesAttached = append(slices.DeleteFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
			_, _, csi := claim.SplitUniqueName(a.Name)
			return csi
		}), p.attached...)
		return nil
	})
	return err
}

// read reads the state of a node.
func (r *run) read(ctx context.Context, name string) (view, error) {
	v := view{name: name, wanted: map[string]*volume{}}
	node, err := client.Get[*corev1.Node](ctx, r.deps.Client, "", name)
	if err != nil && !apierrors.IsNotFound(err) {
		return v, err
	}
	if err == nil {
		v.node = node
	}
	pods, err := client.List[*corev1.Pod](ctx, r.deps.Client,
		client.Selector{Fields: fields.OneTermEqualSelector("spec.nodeName", name)})
	if err != nil {
		return v, err
	}
	for _, pod := range pods {
		volumes, err := r.volumesOf(ctx, pod)
		if err != nil {
			return v, err
		}
		for _, pv := range volumes {
			at := claim.AttachmentName(pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle, name)
			if v.wanted[at] == nil {
				v.wanted[at] = &volume{PersistentVolume: pv}
			}
			if w := v.wanted[at]; !slices.Contains(w.pods, pod) {
				w.pods = append(w.pods, pod)
			}
		}
	}
	all, err := client.List[*storagev1.VolumeAttachment](ctx, r.deps.Client, client.Selector{})
	if err != nil {
		return v, err
	}
	for _, a := range all {
		if a.Spec.NodeName != name {
			continue
		}
		volume, ours, err := r.identify(ctx, a, &v)
		if err != nil {
			return v, err
		}
		if ours {
			v.attachments = append(v.attachments, attachment{a, volume})
		}
	}
	for _, w := range v.wanted {
		if err := r.others(ctx, w, all, name); err != nil {
			return v, err
		}
	}
	return v, nil
}

// ourName matches the names of VolumeAttachments that the controller creates.
var ourName = regexp.MustCompile(`^csi-[0-9a-f]{64}$`)

// identify returns the name of the volume of a VolumeAttachment, and whether it is one that the controller creates. If
// its PersistentVolume no longer exists, it looks for the volume in the node's status.
func (r *run) identify(ctx context.Context, a *storagev1.VolumeAttachment,
	v *view) (_ corev1.UniqueVolumeName, ours bool, err error) {
	if a.Spec.Source.PersistentVolumeName == nil || !ourName.MatchString(a.Name) {
		return "", false, nil
	}
	if w := v.wanted[a.Name]; w != nil {
		return w.uniqueName(), true, nil
	}
	pv, err := client.Get[*corev1.PersistentVolume](ctx, r.deps.Client, "", *a.Spec.Source.PersistentVolumeName)
	switch {
	case err == nil && pv.Spec.CSI != nil:
		driver, handle := pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle
		return claim.UniqueName(driver, handle), claim.AttachmentName(driver, handle, v.name) == a.Name, nil
	case err == nil:
		return "", false, nil
	case !apierrors.IsNotFound(err):
		return "", false, err
	}
	if v.node == nil {
		return "", true, nil
	}
	names := slices.Clone(v.node.Status.VolumesInUse)
	for _, listed := range v.node.Status.VolumesAttached {
		names = append(names, listed.Name)
	}
	for _, name := range names {
		if driver, handle, ok := claim.SplitUniqueName(name); ok && claim.AttachmentName(driver, handle, v.name) == a.Name {
			return name, true, nil
		}
	}
	return "", true, nil
}

// others finds the other nodes to which a volume is attached, or is being attached, and its pods there.
func (r *run) others(ctx context.Context, w *volume, all []*storagev1.VolumeAttachment, node string) error {
	if w.shareable() {
		return nil
	}
	for _, a := range all {
		source := a.Spec.Source.PersistentVolumeName
		if a.Spec.NodeName != node && a.Spec.Attacher == w.Spec.CSI.Driver && (source != nil && *source == w.Name ||
			a.Name == claim.AttachmentName(w.Spec.CSI.Driver, w.Spec.CSI.VolumeHandle, a.Spec.NodeName)) {
			w.elsewhere = append(w.elsewhere, a.Spec.NodeName)
		}
	}
	if len(w.elsewhere) == 0 {
		return nil
	}
	pods, err := r.usersOf(ctx, w.PersistentVolume)
	for _, pod := range pods {
		if slices.Contains(w.elsewhere, pod.Spec.NodeName) {
			w.users = append(w.users, pod.Name)
		}
	}
	return err
}

// usersOf returns the pods that have a node, have not ended, and use a volume.
func (r *run) usersOf(ctx context.Context, v *corev1.PersistentVolume) ([]*corev1.Pod, error) {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return nil, nil
	}
	pods, err := client.List[*corev1.Pod](ctx, r.deps.Client, client.Selector{Namespace: ref.Namespace})
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == "" || ended(pod) || !slices.Contains(claim.AllOf(pod), ref.Name)
	}), err
}

// volumesOf returns the volumes of a pod that must be attached: those of CSI drivers, behind bound claims. A pod that
// has ended has none.
func (r *run) volumesOf(ctx context.Context, pod *corev1.Pod) ([]*corev1.PersistentVolume, error) {
	if ended(pod) {
		return nil, nil
	}
	var all []*corev1.PersistentVolume
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name := claim.Of(pod, v)
		if name == "" {
			continue
		}
		pv, err := r.volumeOf(ctx, pod, name, v.Ephemeral != nil)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && pv != nil {
			all = append(all, pv)
		}
	}
	return all, nil
}

// volumeOf returns the volume of a claim; nil if it need not be attached. It returns NotFound if the claim or the volume
// does not exist.
func (r *run) volumeOf(ctx context.Context, pod *corev1.Pod, name string,
	isEphemeral bool) (*corev1.PersistentVolume, error) {
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, r.deps.Client, pod.Namespace, name)
	if err != nil || !bound(c) || isEphemeral && ephemeral.VolumeIsForPod(pod, c) != nil {
		return nil, err
	}
	pv, err := client.Get[*corev1.PersistentVolume](ctx, r.deps.Client, "", c.Spec.VolumeName)
	if err != nil || pv.Spec.CSI == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != c.UID {
		return nil, err
	}
	driver, err := client.Get[*storagev1.CSIDriver](ctx, r.deps.Client, "", pv.Spec.CSI.Driver)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil && !claim.NeedsAttach(driver) {
		return nil, nil
	}
	return pv, nil
}
