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
	if _, ok := c.Assign(n); !ok {
		return refuseFinally(whyNone)
	}
	return Refusal{}
}

// Open returns the claims that are bound after the pod gets a node.
func (c *Cycle) Open() []OpenClaim { return c.volumeState().open }

// Assign maps the name of each open claim to an available volume, or to nil if a volume can be provisioned on the node.
// It returns false if a claim can get neither.
func (c *Cycle) Assign(n *cluster.Node) (map[string]*corev1.PersistentVolume, bool) {
	open := c.Open()
	if len(open) == 0 {
		return nil, true
	}
	assigned, taken := map[string]*corev1.PersistentVolume{}, map[string]bool{}
	for _, o := range open {
		if selected := o.Annotations[claim.SelectedNode]; selected != "" && c.Node(selected) != nil {
			if selected != n.Name {
				return nil, false
			}
			continue // it is being provisioned
		}
		if v := claim.Best(o.PersistentVolumeClaim, o.usable, n.Node, taken, false); v != nil {
			assigned[o.Name], taken[v.Name] = v, true
		} else if !provisionable(o.class, n) {
			return nil, false
		}
	}
	return assigned, true
}

// provisionable reports whether the class has a provisioner and allows the node.
func provisionable(class *storagev1.StorageClass, n *cluster.Node) bool {
	if class.Provisioner == "" || class.Provisioner == claim.NoProvisioner {
		return false
	}
	return len(class.AllowedTopologies) == 0 ||
		slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
			return !slices.ContainsFunc(t.MatchLabelExpressions, func(r corev1.TopologySelectorLabelRequirement) bool {
				return !slices.Contains(r.Values, n.Labels[r.Key])
			})
		})
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

// volumeLimits checks the limits of the node's CSI drivers.
func volumeLimits(c *Cycle, n *cluster.Node) Refusal {
	limits := c.Storage.Nodes[n.Name]
	if limits == nil || len(c.Pod.Claims) == 0 {
		return Refusal{}
	}
	wants := map[[2]string]bool{}
	c.attached(c.Pod, wants)
	if len(wants) == 0 {
		return Refusal{}
	}
	has := map[[2]string]bool{}
	for _, p := range n.Pods {
		c.attached(p, has)
	}
	for _, d := range limits.Spec.Drivers {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			continue
		}
		attached, more := 0, 0
		for v := range has {
			if v[0] == d.Name {
				attached++
			}
		}
		for v := range wants {
			if v[0] == d.Name && !has[v] {
				more++
			}
		}
		if more > 0 && attached+more > int(*d.Allocatable.Count) {
			return refuse(whyLimit)
		}
	}
	return Refusal{}
}

// attached adds the volumes of a pod's claims to a set, each as its driver and handle. An unbound claim counts as a
// volume of its class' provisioner.
func (c *Cycle) attached(p *cluster.Pod, to map[[2]string]bool) {
	for _, key := range p.Claims {
		pvc := c.Storage.Claims[key]
		if pvc == nil {
			continue
		}
		if v := c.Storage.Volumes[pvc.Spec.VolumeName]; v != nil {
			if v.Spec.CSI != nil {
				to[[2]string{v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle}] = true
			}
		} else if class := c.Storage.Classes[claim.Class(pvc)]; class != nil {
			to[[2]string{class.Provisioner, "claim " + key}] = true
		}
	}
}

// VolumesFit returns the reason why the pod's volumes cannot be used or bound on a node.
func (c *Cycle) VolumesFit(n *cluster.Node) Refusal {
	if all := c.volumeState().all; all.Refused() {
		return all
	}
	return volumes(c, n)
}
