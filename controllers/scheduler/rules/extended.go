package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"monopod/controllers/scheduler/cluster"
)

// extendedClaim is the claim for a pod's extended resources that devices provide. It is created after a node is chosen.
type extendedClaim struct {
	claim    *resourcev1.ResourceClaim
	mappings []corev1.ContainerExtendedResourceRequest // containers and the requests whose devices they get
}

// provided reports whether devices provide an extended resource on a node: a DeviceClass provides it, and no device
// plugin does.
func provided(c *Cycle, n *cluster.Node, name corev1.ResourceName) bool {
	return n.Allocatable.More[name] == 0 && c.Devices.Class(name) != nil
}

// extended reports whether a DeviceClass provides an extended resource of the pod.
func (c *Cycle) extended() bool {
	for name, n := range c.Pod.Requests.More {
		if n > 0 && c.Devices.Class(name) != nil {
			return true
		}
	}
	return false
}

// addExtended finds the claim for the pod's extended resources. A claim that an interrupted attempt created is
// replaced.
func (s *deviceState) addExtended(c *Cycle) error {
	if st := c.Pod.Status.ExtendedResourceClaimStatus; st != nil {
		claim := c.Devices.Claims[c.Pod.Namespace+"/"+st.ResourceClaimName]
		if claim != nil && claim.Status.Allocation != nil && claim.DeletionTimestamp == nil &&
			resourceclaim.IsForPod(c.Pod.Pod, claim, false) == nil {
			return s.add(c, claim.Name, true)
		}
	}
	s.specials = map[string]*extendedClaim{}
	for _, claim := range c.Devices.Claims {
		if claim.Namespace == c.Pod.Namespace && Extended(claim) && metav1.IsControlledBy(claim, c.Pod) {
			s.stale = append(s.stale, claim)
		}
	}
	return nil
}

// Extended reports whether a claim was created for the extended resources of a pod.
func Extended(claim *resourcev1.ResourceClaim) bool {
	return claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true"
}

// special returns the claim that the pod needs on a node, or nil.
func (s *deviceState) special(c *Cycle, n *cluster.Node) *extendedClaim {
	if s.specials == nil {
		return nil
	}
	var names []string
	for name, amount := range c.Pod.Requests.More {
		if amount > 0 && provided(c, n, name) {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	key := strings.Join(names, ",")
	if s.specials[key] == nil {
		s.specials[key] = newSpecial(c, names)
	}
	return s.specials[key]
}

func newSpecial(c *Cycle, names []string) *extendedClaim {
	s := &extendedClaim{claim: &resourcev1.ResourceClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Pod.Namespace, GenerateName: c.Pod.Name + "-extended-resources-", UID: uuid.NewUUID(),
			Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c.Pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
	}}
	for _, name := range names {
		s.request(c.Pod.Pod, corev1.ResourceName(name), c.Devices.Class(corev1.ResourceName(name)).Name)
	}
	slices.SortFunc(s.claim.Spec.Devices.Requests,
		func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// request adds the containers' requests for a resource. Init containers end before regular containers start. They use
// the devices of the latter, and share one request for the rest.
func (s *extendedClaim) request(pod *corev1.Pod, resource corev1.ResourceName, class string) {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	ends := func(i int) bool {
		p := all[i].RestartPolicy
		return i < len(pod.Spec.InitContainers) && (p == nil || *p != corev1.ContainerRestartPolicyAlways)
	}
	unshared := make([]int64, len(all)) // devices that the init container needs beyond the shared ones
	beyond := func(i int) int64 {
		n := amount(&all[i], resource)
		for _, later := range unshared[i:] {
			n -= later
		}
		return n
	}
	most := -1
	for i := range all {
		if !ends(i) {
			unshared[i] = amount(&all[i], resource)
		}
	}
	for i := range pod.Spec.InitContainers {
		if ends(i) && beyond(i) > 0 && (most < 0 || beyond(i) > beyond(most)) {
			most = i
		}
	}
	name := func(i int) string { return fmt.Sprintf("container-%d-request-%d", i, position(&all[i], resource)) }
	add := func(i int, count int64) {
		s.claim.Spec.Devices.Requests = append(s.claim.Spec.Devices.Requests,
			resourcev1.DeviceRequest{Name: name(i), Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}})
	}
	gets := func(i, from int) {
		s.mappings = append(s.mappings,
			corev1.ContainerExtendedResourceRequest{ContainerName: all[i].Name, ResourceName: string(resource),
				RequestName: name(from)})
	}
	if most >= 0 {
		add(most, beyond(most))
	}
	for i := range all {
		if unshared[i] > 0 {
			add(i, unshared[i])
			gets(i, i)
		}
	}
	for i := range pod.Spec.InitContainers {
		if !ends(i) {
			continue
		}
		left := amount(&all[i], resource)
		for j := i; j < len(all) && left > 0; j++ {
			if unshared[j] > 0 {
				gets(i, j)
				left -= unshared[j]
			}
		}
		if left > 0 {
			gets(i, most)
		}
	}
}

func amount(c *corev1.Container, resource corev1.ResourceName) int64 {
	q := c.Resources.Requests[resource]
	return q.Value()
}

// position returns the index of a resource among the requests of a container.
func position(c *corev1.Container, resource corev1.ResourceName) int {
	return slices.Index(slices.Sorted(maps.Keys(c.Resources.Requests)), resource)
}
