package attachdetach

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/claim"
	"monopod/controllers/podstate"
)

const (
	// maxWaitForUnmount is how long a volume of a node that is not ready may be in use after the last of its pods has
	// ended, before it is detached (upstream ReconcilerMaxWaitForUnmountDuration).
	maxWaitForUnmount = 6 * time.Minute
	// attachTimeout is the time after which an Event says that a driver does not answer (upstream csiTimeout).
	attachTimeout = 2 * time.Minute
)

// The reasons of Events are upstream's.
const (
	reasonAttached = "SuccessfulAttachVolume"
	reasonFailed   = "FailedAttachVolume"
)

// The label values of the metric of forced detaches are upstream's.
const (
	forcedByTimeout = "timeout"
	forcedByTaint   = "out-of-service"
)

// volume is a CSI volume that pods of the node use and that must be attached.
type volume struct {
	*corev1.PersistentVolume
	pods []*corev1.Pod
	// The other nodes with a VolumeAttachment of the volume, and the names of the pods that use it there.
	elsewhere, users []string
}

func (v *volume) uniqueName() corev1.UniqueVolumeName {
	return claim.UniqueName(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle)
}

// shareable reports whether the volume may be attached to several nodes (upstream IsMultiAttachAllowed).
func (v *volume) shareable() bool {
	modes := v.Spec.AccessModes
	return len(modes) == 0 || slices.Contains(modes, corev1.ReadWriteMany) || slices.Contains(modes, corev1.ReadOnlyMany)
}

// attachment is a VolumeAttachment of the controller, with the name of its volume.
type attachment struct {
	*storagev1.VolumeAttachment
	volume corev1.UniqueVolumeName // empty if the PersistentVolume is deleted and the node does not use it
}

// view is what the controller knows about a node.
type view struct {
	name        string
	node        *corev1.Node       // nil: it does not exist
	wanted      map[string]*volume // by the name of the VolumeAttachment
	attachments []attachment       // of the node, by name
}

// memory is what the controller remembers of a node between two decisions. It is never modified.
type memory struct {
	since    map[types.UID]time.Time // when a VolumeAttachment was no longer wanted
	reported map[string]string       // the last Event about a VolumeAttachment to a pod
}

// detach is a VolumeAttachment to delete.
type detach struct {
	attachment
	forced string // why it is detached although the node uses the volume; empty: the node does not
}

// event is an Event on a pod.
type event struct {
	pod             *corev1.Pod
	typ, reason, is string
}

// plan is the result of a decision.
type plan struct {
	attached []corev1.AttachedVolume // the CSI volumes that volumesAttached must list
	detach   []detach
	create   []*storagev1.VolumeAttachment
	events   []event
	again    time.Duration // when to decide again; 0: after a change
	memory   memory
}

// decider decides what to do about a node.
type decider struct {
	view
	now     time.Time
	noForce bool // no detach after maxWaitForUnmount
	was     memory
	current plan
}

// decide returns what must change at the node's volumes.
func decide(v view, was memory, now time.Time, disableForceDetach bool) plan {
	d := decider{view: v, now: now, noForce: disableForceDetach, was: was,
		current: plan{memory: memory{since: map[types.UID]time.Time{}, reported: map[string]string{}}}}
	exist := map[string]bool{}
	for _, a := range v.attachments {
		exist[a.Name] = true
		d.existing(a)
	}
	for _, name := range slices.Sorted(maps.Keys(v.wanted)) {
		if !exist[name] {
			d.missing(name, v.wanted[name])
		}
	}
	return d.current
}

// existing decides about a VolumeAttachment.
func (d *decider) existing(a attachment) {
	p, v := &d.current, d.wanted[a.Name]
	list := func() {
		if a.Status.Attached {
			p.attached = append(p.attached, corev1.AttachedVolume{Name: a.volume, DevicePath: a.Name})
		}
	}
	switch {
	case a.DeletionTimestamp != nil: // its driver detaches it
	case v != nil:
		list()
		d.report(a, v)
	case d.node != nil && !slices.Contains(d.node.Status.VolumesInUse, a.volume):
		p.detach = append(p.detach, detach{a, ""})
	case d.node != nil && outOfService(d.node):
		p.detach = append(p.detach, detach{a, forcedByTaint})
	default:
		since, known := d.was.since[a.UID]
		if !known {
			since = d.now
		}
		p.memory.since[a.UID] = since
		switch left := since.Add(maxWaitForUnmount).Sub(d.now); {
		case d.noForce || d.node != nil && podstate.NodeReady(d.node): // until the node has unmounted it
			list()
		case left > 0:
			list()
			d.wait(left)
		default:
			p.detach = append(p.detach, detach{a, forcedByTimeout})
		}
	}
}

// report adds the Events about a wanted VolumeAttachment.
func (d *decider) report(a attachment, v *volume) {
	age := d.now.Sub(a.CreationTimestamp.Time)
	switch e := a.Status.AttachError; {
	case a.Status.Attached:
		listed := corev1.AttachedVolume{Name: a.volume, DevicePath: a.Name}
		if d.node != nil && !slices.Contains(d.node.Status.VolumesAttached, listed) {
			d.tell(a.Name, v, corev1.EventTypeNormal, reasonAttached,
				fmt.Sprintf("AttachVolume.Attach succeeded for volume %q ", v.Name), "")
		}
	case e != nil:
		d.tell(a.Name, v, corev1.EventTypeWarning, reasonFailed,
			fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", v.Name, e.Message), e.Time.String())
	case age >= attachTimeout:
		d.tell(a.Name, v, corev1.EventTypeWarning, reasonFailed,
			fmt.Sprintf("AttachVolume.Attach failed for volume %q : timed out waiting for external-attacher of %s CSI "+
				"driver to attach volume %s", v.Name, a.Spec.Attacher, v.Spec.CSI.VolumeHandle), "")
	default:
		d.wait(attachTimeout - age)
	}
}

// missing decides about a volume without VolumeAttachment.
func (d *decider) missing(name string, v *volume) {
	switch {
	case d.node == nil: // pods of a node that is not registered yet, or deleted
	case len(v.elsewhere) > 0 && !v.shareable():
		why := "Volume is already exclusively attached to one node, " +
			"waiting on detach before it can be attached to another node"
		if len(v.users) > 0 {
			why = "Volume is already used by pod(s) " + strings.Join(v.users, ", ")
		}
		d.tell(name, v, corev1.EventTypeWarning, reasonFailed,
			fmt.Sprintf("Waiting for detach for volume %q %s", v.Name, why), "")
	default:
		d.current.create = append(d.current.create, &storagev1.VolumeAttachment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: v.Spec.CSI.Driver, NodeName: d.name,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.PersistentVolume.Name}},
		})
	}
}

// tell adds an Event for each pod of the volume that does not have it yet. The same message of another occurrence is a
// new Event.
func (d *decider) tell(attachment string, v *volume, typ, reason, message, occurrence string) {
	for _, pod := range v.pods {
		key := attachment + " " + string(pod.UID)
		d.current.memory.reported[key] = message + occurrence
		if d.was.reported[key] != message+occurrence {
			d.current.events = append(d.current.events, event{pod, typ, reason, message})
		}
	}
}

func (d *decider) wait(left time.Duration) {
	if d.current.again == 0 || left < d.current.again {
		d.current.again = left
	}
}

// outOfService reports whether an admin has declared the node out of service: nothing runs there anymore.
func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}
