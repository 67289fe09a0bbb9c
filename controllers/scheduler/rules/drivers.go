package rules

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/claim"
	"monopod/controllers/scheduler/cluster"
)

// volumeLimits checks that the node has the CSI drivers of the pod's claims, if they require that, and the limits of the
// node's drivers.
func volumeLimits(c *Cycle, n *cluster.Node) Refusal {
	if len(c.Pod.Claims) == 0 {
		return Refusal{}
	}
	wants := map[[2]string]bool{}
	c.attached(c.Pod, wants)
	if len(wants) == 0 {
		return Refusal{}
	}
	here := map[string]storagev1.CSINodeDriver{}
	limited := false
	if node := c.Storage.Nodes[n.Name]; node != nil {
		for _, d := range node.Spec.Drivers {
			here[d.Name] = d
			limited = limited || d.Allocatable != nil && d.Allocatable.Count != nil
		}
	}
	for v := range wants {
		d := c.Storage.Drivers[v[0]]
		if _, installed := here[v[0]]; d != nil && !installed && isTrue(d.Spec.PreventPodSchedulingIfMissing) {
			return refuse(v[0] + " CSI driver is not installed on the node")
		}
	}
	if !limited {
		return Refusal{}
	}
	has := map[[2]string]bool{}
	for _, p := range n.Pods {
		c.attached(p, has)
	}
	for _, a := range c.Storage.Attachments[n.Name] { // also of pods that have ended
		if name := a.Spec.Source.PersistentVolumeName; name != nil {
			if v := c.Storage.Volumes[*name]; v != nil && v.Spec.CSI != nil {
				has[[2]string{a.Spec.Attacher, v.Spec.CSI.VolumeHandle}] = true
			}
		}
	}
	for name, d := range here {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			continue
		}
		attached, more := 0, 0
		for v := range has {
			if v[0] == name {
				attached++
			}
		}
		for v := range wants {
			if v[0] == name && !has[v] {
				more++
			}
		}
		if more > 0 && attached+more > int(*d.Allocatable.Count) {
			return refuse(whyLimit)
		}
	}
	return Refusal{}
}

func isTrue(b *bool) bool { return b != nil && *b }

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

// capacityFor returns a capacity that the node can access and that suffices for an open claim. Without one, enough is
// true only if the driver publishes no capacity (upstream hasEnoughCapacity).
func (c *Cycle) capacityFor(o OpenClaim, n *cluster.Node) (found *storagev1.CSIStorageCapacity, enough bool) {
	size, sized := o.Spec.Resources.Requests[corev1.ResourceStorage]
	driver := c.Storage.Drivers[o.class.Provisioner]
	if !sized || driver == nil || !isTrue(driver.Spec.StorageCapacity) {
		return nil, true
	}
	for _, s := range c.Storage.Capacities {
		limit := cluster.MaxVolume(s)
		if s.StorageClassName != o.class.Name || limit == nil || limit.Cmp(size) < 0 || s.NodeTopology == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(s.NodeTopology)
		if err == nil && selector.Matches(labels.Set(n.Labels)) {
			return s, true
		}
	}
	return nil, false
}

func anyOpenClaim(c *Cycle, _ []*cluster.Node) bool { return len(c.Open()) > 0 }

// freeStorage is higher the less of the storage that a node can offer the pod's open claims need: of the volumes that
// they would be bound to, or else of the capacity that their drivers publish. Each class has the same weight.
func freeStorage(c *Cycle, n *cluster.Node) int64 {
	type amount struct{ requested, capacity int64 }
	classes := map[string]*amount{}
	of := func(o OpenClaim) *amount {
		if classes[o.class.Name] == nil {
			classes[o.class.Name] = &amount{}
		}
		a := classes[o.class.Name]
		a.requested += o.Spec.Resources.Requests.Storage().Value()
		return a
	}
	assigned, _ := c.Assign(n)
	for _, o := range c.Open() {
		if v := assigned[o.Name]; v != nil {
			of(o).capacity += v.Spec.Capacity.Storage().Value()
		} else if s, _ := c.capacityFor(o, n); len(assigned) == 0 && s != nil && s.Capacity != nil {
			of(o).capacity = s.Capacity.Value()
		}
	}
	if len(classes) == 0 {
		return 0
	}
	var sum int64
	for _, a := range classes {
		if a.capacity > 0 && a.requested <= a.capacity {
			sum += best - int64(float64(a.requested)/float64(a.capacity)*best)
		}
	}
	return int64(math.Round(float64(sum) / float64(len(classes))))
}
