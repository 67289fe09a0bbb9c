package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/podstate"
	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

// changed wakes the waiting pods that the changes may make schedulable, according to the rules that refused them. The
// caller of this function and of all below holds mu.
func (r *run) changed(changes ...cluster.Change) []follow.Key {
	var keys []follow.Key
	for _, ch := range changes {
		var asked []int
		for i := range r.chooser.Rules {
			if r.chooser.Rules[i].Wakes&ch.ChangeKind != 0 && r.queue.Refusals(i) > 0 {
				asked = append(asked, i)
			}
		}
		if len(asked) == 0 {
			continue
		}
		keys = append(keys, r.queue.Wake(r.deps.Clock.Now(), func(p *cluster.Pod, rejected rules.Set) bool {
			return slices.ContainsFunc(asked, func(i int) bool {
				hint := r.chooser.Rules[i].Hint
				return rejected&(1<<i) != 0 && (hint == nil || hint(r.cluster, p, ch))
			})
		})...)
	}
	return keys
}

func (r *run) onNamespace(old, new client.Object) []follow.Key {
	var set labels.Set
	name := ""
	if new != nil {
		name, set = new.GetName(), labels.Set(new.GetLabels())
		if set == nil {
			set = labels.Set{}
		}
	} else {
		name = old.GetName()
	}
	if !r.cluster.SetNamespace(name, set) {
		return nil
	}
	return r.changed(cluster.Change{ChangeKind: cluster.NamespaceLabels})
}

func (r *run) onNode(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Node)
	is, _ := new.(*corev1.Node)
	if is == nil {
		r.cluster.DropNode(was.Name)
		return r.changed(cluster.Change{ChangeKind: cluster.NodeRemoved})
	}
	r.cluster.SetNode(is)
	what := cluster.NodeAdded
	if was != nil {
		what = cluster.NodeChange(was, is)
	}
	if what == 0 {
		return nil
	}
	return r.changed(cluster.Change{ChangeKind: what, Node: r.cluster.Node(is.Name)})
}

func (r *run) onPod(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	if is == nil {
		return r.gone(was)
	}
	key := follow.KeyOf(is)
	switch {
	case podstate.Finished(is):
		return r.gone(is)
	case is.Spec.NodeName != "":
		r.queue.Remove(key)
		delete(r.reserved, key)
		return r.placed(is)
	case !wanted(is):
		return r.gone(is)
	}
	p := r.cluster.Pod(is.UID) // the assumed pod
	assumed := p != nil
	if !assumed {
		p = cluster.NewPod(is)
	}
	if was == nil || was.Status.NominatedNodeName != is.Status.NominatedNodeName {
		r.nominate(p, is.Status.NominatedNodeName)
	}
	if was != nil && wanted(was) && sameForRules(was, is) {
		if !assumed {
			r.queue.Refresh(key, p)
		}
		return nil
	}
	if assumed {
		p = cluster.NewPod(is)
	}
	r.metrics.incoming(was == nil)
	r.queue.Set(key, p, r.deps.Clock.Now())
	return []follow.Key{key}
}

// sameForRules reports whether all fields that rules read are equal, for example if only other parts of the status
// changed.
func sameForRules(a, b *corev1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) &&
		resourceclaim.PodExtendedStatusEqual(a.Status.ExtendedResourceClaimStatus, b.Status.ExtendedResourceClaimStatus) &&
		resourceclaim.PodStatusEqual(a.Status.ResourceClaimStatuses, b.Status.ResourceClaimStatuses) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// gone removes a pod that needs no node, or was deleted.
func (r *run) gone(p *corev1.Pod) []follow.Key {
	key := follow.KeyOf(p)
	if e := r.queue.Get(key); e != nil && e.UID == p.UID {
		r.queue.Remove(key)
		delete(r.reserved, key)
		r.nominate(e.Pod, "")
	}
	old := r.cluster.Remove(p.UID)
	if old == nil {
		return nil
	}
	return r.changed(cluster.Change{ChangeKind: old.RemovalChange(), Node: r.cluster.Node(old.Node), Pod: old})
}

// placed records a pod with a node.
func (r *run) placed(is *corev1.Pod) []follow.Key {
	old := r.cluster.Remove(is.UID)
	var now *cluster.Pod
	if old != nil && old.Assumed {
		now = old.Bound(is)
	} else {
		now = cluster.NewPod(is)
	}
	r.cluster.Add(now, is.Spec.NodeName)
	r.nominate(now, "")
	n := r.cluster.Node(is.Spec.NodeName)
	if old == nil || old.Assumed {
		keys := r.changed(cluster.Change{ChangeKind: cluster.PodPlaced, Node: n, Pod: now})
		if old != nil && old.Node != now.Node {
			removal := cluster.Change{ChangeKind: old.RemovalChange(), Node: r.cluster.Node(old.Node), Pod: old}
			keys = append(keys, r.changed(removal)...)
		}
		return keys
	}
	what := cluster.PodChange(old, now)
	var keys []follow.Key
	if less := what & (cluster.PodGone | cluster.PodShrunk); less != 0 {
		keys = r.changed(cluster.Change{ChangeKind: less, Node: n, Pod: old})
	}
	if what&cluster.PodPlaced != 0 {
		keys = append(keys, r.changed(cluster.Change{ChangeKind: cluster.PodPlaced, Node: n, Pod: now})...)
	}
	return keys
}

// onStorage wakes the pods that a change of a volume, a claim, a class, or what CSI drivers report may make schedulable,
// and the reservations that wait for their claims.
func (r *run) onStorage(old, new client.Object) []follow.Key {
	if needsDriver(new) {
		r.loop.FollowOptional() // what only drivers and the controllers beside them write
	}
	what, name := r.cluster.Set(old, new)
	keys := r.changed(cluster.Change{ChangeKind: what, Name: name})
	for key, place := range r.reserved {
		if what&(cluster.Volumes|cluster.Classes) != 0 ||
			what == cluster.Claims && slices.Contains(place.pod.Claims, name) {
			keys = append(keys, key)
		}
	}
	return keys
}

// needsDriver reports whether the object is of a CSI driver, or may become a volume of one.
func needsDriver(obj client.Object) bool {
	switch obj := obj.(type) {
	case *corev1.PersistentVolume:
		return obj.Spec.CSI != nil
	case *storagev1.StorageClass:
		return obj.Provisioner != claim.Provisioner && obj.Provisioner != claim.NoProvisioner
	case *storagev1.CSINode:
		return len(obj.Spec.Drivers) > 0
	}
	return false
}

// onDevices wakes the pods that a change of a ResourceClaim, ResourceSlice, DeviceClass or DeviceTaintRule may make
// schedulable, and the reservations that wait for their devices.
func (r *run) onDevices(old, new client.Object) []follow.Key {
	what, name := r.cluster.SetDevices(old, new)
	keys := r.changed(cluster.Change{ChangeKind: what, Name: name})
	for key, place := range r.reserved {
		if slices.Contains(place.claims, name) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (r *run) onBudget(old, new client.Object) []follow.Key {
	if is, ok := new.(*policyv1.PodDisruptionBudget); ok {
		r.budgets[follow.KeyOf(is)] = is
	} else {
		delete(r.budgets, follow.KeyOf(old))
	}
	return nil
}

// onService wakes nothing, because Services only influence scores.
func (r *run) onService(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Service)
	is, _ := new.(*corev1.Service)
	r.cluster.SetService(was, is)
	return nil
}
