package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"monopod/apiserver/kit/claim"
	"monopod/controllers/scheduler/cluster"
)

// The messages are upstream's.
const (
	whyImmediate = "pod has unbound immediate PersistentVolumeClaims"
	whyElsewhere = "node(s) didn't match PersistentVolume's node affinity"
	whyNone      = "node(s) didn't find available persistent volumes to bind"
	whyGone      = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	whyAlone     = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
	whyDisk      = "node(s) had no available disk"
	whyLimit     = "node(s) exceed max volume count"
	whyZone      = "node(s) had no available volume zone"
	whySpace     = "node(s) did not have enough free storage"
)

// OpenClaim is a claim without a volume that is bound after its pod gets a node.
type OpenClaim struct {
	*corev1.PersistentVolumeClaim
	class  *storagev1.StorageClass
	usable []*corev1.PersistentVolume // available volumes for the claim, on any node
}

// volumeState contains the requirements of a pod's claims.
type volumeState struct {
	all              Refusal                    // for every node
	bound            []*corev1.PersistentVolume // volumes of bound claims, if they exist
	gone             bool                       // the volume of a bound claim does not exist
	open             []OpenClaim
	readWriteOncePod []string // keys of ReadWriteOncePod claims
}

func (c *Cycle) volumeState() *volumeState {
	if c.volumes == nil {
		c.volumes = computeVolumes(c)
	}
	return c.volumes
}

func computeVolumes(c *Cycle) *volumeState {
	s := &volumeState{}
	for i := range c.Pod.Spec.Volumes {
		v := &c.Pod.Spec.Volumes[i]
		if name := claim.Of(c.Pod.Pod, v); name != "" {
			if why := s.add(c, v, name); why != "" && !s.all.Refused() {
				s.all = refuseFinally(why)
			}
		}
	}
	return s
}

// add adds one claim to the state. It returns the reason why all nodes are refused, if they are.
func (s *volumeState) add(c *Cycle, v *corev1.Volume, name string) (why string) {
	key := c.Pod.Namespace + "/" + name
	pvc := c.Storage.Claims[key]
	switch {
	case pvc == nil && v.Ephemeral != nil:
		return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
	case pvc == nil:
		return fmt.Sprintf("persistentvolumeclaim %q not found", name)
	case pvc.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, pvc.Spec.VolumeName)
	case pvc.DeletionTimestamp != nil:
		return fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
	}
	if v.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(c.Pod.Pod, pvc); err != nil {
			return err.Error()
		}
	}
	if slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteOncePod) {
		s.readWriteOncePod = append(s.readWriteOncePod, key)
	}
	if claim.Bound(pvc) {
		if v := c.Storage.Volumes[pvc.Spec.VolumeName]; v != nil {
			s.bound = append(s.bound, v)
		} else {
			s.gone = true
		}
		return ""
	}
	class := c.Storage.Classes[claim.Class(pvc)]
	if !claim.WaitsForConsumer(class) || pvc.Spec.VolumeName != "" {
		return whyImmediate
	}
	open := OpenClaim{PersistentVolumeClaim: pvc, class: class}
	for _, v := range c.Storage.Volumes {
		if c.Storage.Free(v, pvc) {
			open.usable = append(open.usable, v)
		}
	}
	s.open = append(s.open, open)
	return ""
}

func unusableClaims(c *Cycle) (map[string]bool, Refusal) { return nil, c.volumeState().all }

// alone refuses nodes while another pod uses a ReadWriteOncePod claim of the pod, and nodes with a pod that uses one of
// its disks.
func alone(c *Cycle, n *cluster.Node) Refusal {
	if n.DisksTaken(c.Pod) {
		return refuse(whyDisk)
	}
	for _, key := range c.volumeState().readWriteOncePod {
		if c.ClaimUsers(key) > 0 {
			return refuse(whyAlone)
		}
	}
	return Refusal{}
}

func claimFreed(_ *cluster.Cluster, p *cluster.Pod, ch cluster.Change) bool {
	if ch.Pod != nil {
		return p.SharesDisk(ch.Pod) || slices.ContainsFunc(ch.Pod.Claims,
			func(key string) bool { return slices.Contains(p.Claims, key) })
	}
	return slices.Contains(p.Claims, ch.Name)
}

// ownClaim is a Hint: a change of a claim helps only if the pod uses the claim.
func ownClaim(all *cluster.Cluster, p *cluster.Pod, ch cluster.Change) bool {
	c := NewCycle(all, p)
	switch {
	case ch.ChangeKind&cluster.Claims != 0:
		return slices.Contains(p.Claims, ch.Name)
	case ch.Node != nil:
		return !c.VolumesFit(ch.Node).Refused()
	}
	return !c.volumeState().all.Refused()
}

// volumes checks that the node can access the volumes of bound claims, and that the others can be bound there.
func volumes(c *Cycle, n *cluster.Node) Refusal {
	s := c.volumeState()
	switch {
	case s.gone:
		return refuseFinally(whyGone)
	case slices.ContainsFunc(s.bound, func(v *corev1.PersistentVolume) bool { return !claim.UsableOn(v, n.Node) }):
		return refuseFinally(whyElsewhere)
	}
	if _, why := c.assign(n); why != "" {
		return refuseFinally(why)
	}
	return Refusal{}
}

// Open returns the claims that are bound after the pod gets a node.
func (c *Cycle) Open() []OpenClaim { return c.volumeState().open }

// Assign maps the name of each open claim to an available volume, or to nil if a volume can be provisioned on the node.
// It returns false if a claim can get neither.
func (c *Cycle) Assign(n *cluster.Node) (map[string]*corev1.PersistentVolume, bool) {
	assigned, why := c.assign(n)
	return assigned, why == ""
}

// assign is Assign; why is the reason why a claim can get no volume.
func (c *Cycle) assign(n *cluster.Node) (assigned map[string]*corev1.PersistentVolume, why string) {
	open := c.Open()
	if len(open) == 0 {
		return nil, ""
	}
	assigned, taken := map[string]*corev1.PersistentVolume{}, map[string]bool{}
	for _, o := range open {
		if selected := o.Annotations[claim.SelectedNode]; selected != "" && c.Node(selected) != nil {
			if selected != n.Name {
				return nil, whyNone
			}
			continue // it is being provisioned
		}
		if v := claim.Best(o.PersistentVolumeClaim, o.usable, n.Node, taken, false); v != nil {
			assigned[o.Name], taken[v.Name] = v, true
		} else if why := c.provisionable(o, n); why != "" {
			return nil, why
		}
	}
	return assigned, ""
}

// provisionable returns why the class of a claim cannot provision a volume for the node; empty: it can.
func (c *Cycle) provisionable(o OpenClaim, n *cluster.Node) (why string) {
	class := o.class
	if class.Provisioner == "" || class.Provisioner == claim.NoProvisioner {
		return whyNone
	}
	if len(class.AllowedTopologies) > 0 &&
		!slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
			return !slices.ContainsFunc(t.MatchLabelExpressions, func(r corev1.TopologySelectorLabelRequirement) bool {
				return !slices.Contains(r.Values, n.Labels[r.Key])
			})
		}) {
		return whyNone
	}
	if _, enough := c.capacityFor(o, n); !enough {
		return whySpace
	}
	return ""
}

// volumeZone checks that the zone and region labels of bound volumes contain those of the node. A node without these
// labels fits.
func volumeZone(c *Cycle, n *cluster.Node) Refusal {
	for _, v := range c.volumeState().bound {
		for _, label := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
			corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion} {
			zones, has := v.Labels[label]
			if at := zoneOf(n, label); has && at != "" && !slices.Contains(strings.Split(zones, "__"), at) {
				return refuseFinally(whyZone)
			}
		}
	}
	return Refusal{}
}

// zoneOf returns the node's value of a zone or region label, which has two names.
func zoneOf(n *cluster.Node, label string) string {
	other := map[string]string{
		corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
		corev1.LabelTopologyZone:            corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		corev1.LabelTopologyRegion:          corev1.LabelFailureDomainBetaRegion,
	}
	if at, ok := n.Labels[label]; ok {
		return at
	}
	return n.Labels[other[label]]
}

// VolumesFit returns the reason why the pod's volumes cannot be used or bound on a node.
func (c *Cycle) VolumesFit(n *cluster.Node) Refusal {
	if all := c.volumeState().all; all.Refused() {
		return all
	}
	return volumes(c, n)
}
