package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/podcidr"
	"monopod/apiserver/kit/volume"
	"monopod/apiserver/registry/admission"
)

// nodeRestriction restricts an agent, the user system:node:NAME in group system:nodes, to its own Node and Lease, the
// status of its pods, its mirror pods, and tokens for its pods (upstream: plugin/pkg/admission/noderestriction).
func nodeRestriction(c client.Client) admission.Plugin {
	return admission.Plugin{Name: "NodeRestriction", Validate: func(ctx context.Context, r *admission.Request) error {
		user, ok := auth.Known(ctx)
		if !ok || !slices.Contains(user.Groups, auth.Nodes) {
			return nil
		}
		name, ok := strings.CutPrefix(user.Name, auth.NodePrefix)
		if !ok || name == "" {
			return r.Forbid(fmt.Errorf("could not determine node from user %q", user.Name))
		}
		n := nodeWrite{Request: r, client: c, node: name}
		if err := n.check(ctx); err != nil {
			if api := apierrors.APIStatus(nil); errors.As(err, &api) {
				return err
			}
			return r.Forbid(err)
		}
		return nil
	}}
}

// nodeWrite is one write by the agent of node.
type nodeWrite struct {
	*admission.Request
	client client.Client
	node   string
}

func (n nodeWrite) check(ctx context.Context) error {
	switch n.Resource.GVR {
	case client.Pods:
		return n.pod(ctx)
	case client.Nodes:
		return n.nodeItself(ctx)
	case client.ServiceAccounts:
		return n.token(ctx)
	case client.Leases:
		if n.Namespace != corev1.NamespaceNodeLease {
			return fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
		}
		if n.Name != n.node {
			return errors.New("can only access node lease with the same name as the requesting node")
		}
	case client.ResourceSlices:
		for _, object := range []client.Object{n.Object, n.Old} {
			if s, ok := object.(*resourcev1.ResourceSlice); ok && (s.Spec.NodeName == nil || *s.Spec.NodeName != n.node) {
				return fmt.Errorf("can only create, update and delete ResourceSlices with spec.nodeName %q, its own", n.node)
			}
		}
	case client.PodCertificateRequests:
		return n.certificate(ctx)
	case client.PersistentVolumeClaims:
		return n.claim(ctx)
	case client.PersistentVolumes:
		return n.volume()
	}
	if n.Resource.GVR.Resource == "csinodes" && n.Name != n.node {
		return fmt.Errorf("can only access CSINode with the same name as the requesting node")
	}
	return nil
}

// claim allows a node that has expanded a volume to report that in the claim's status: for claims that its pods use, and
// for volumes in its own folder.
func (n nodeWrite) claim(ctx context.Context) error {
	if n.Subresource != "status" || n.Operation != admission.Update {
		return fmt.Errorf("unexpected operation %q on persistentvolumeclaims subresource %q", n.Operation, n.Subresource)
	}
	rest := func(o client.Object) *corev1.PersistentVolumeClaim {
		c := o.DeepCopyObject().(*corev1.PersistentVolumeClaim)
		c.ResourceVersion, c.ManagedFields = "", nil
		s := &c.Status
		s.Capacity, s.Conditions, s.AllocatedResources, s.AllocatedResourceStatuses = nil, nil, nil, nil
		return c
	}
	if !equality.Semantic.DeepEqual(rest(n.Object), rest(n.Old)) {
		return fmt.Errorf("node %q is not allowed to update fields other than status.quantity and status.conditions", n.node)
	}
	pods, err := client.List[*corev1.Pod](ctx, n.client, client.Selector{Namespace: n.Namespace,
		Fields: fields.OneTermEqualSelector("spec.nodeName", n.node)})
	if err != nil {
		return err
	}
	used := false
	for _, pod := range pods {
		volume.All().References(pod, func(resource, name string) {
			used = used || resource == n.Resource.GVR.Resource && name == n.Name
		})
	}
	if used {
		return nil
	}
	v, err := client.Get[*corev1.PersistentVolume](ctx, n.client, "", n.Old.(*corev1.PersistentVolumeClaim).Spec.VolumeName)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err != nil || !n.holds(v) {
		return fmt.Errorf("node %q can only update the status of claims that its pods use, and of volumes in its folder", n.node)
	}
	return nil
}

// volume allows a node to write the PersistentVolumes in its own folder. Those of other nodes and other kinds could give
// it, or a pod on another node, files of that node.
func (n nodeWrite) volume() error {
	for _, object := range []client.Object{n.Object, n.Old} {
		v, ok := object.(*corev1.PersistentVolume)
		if ok && !n.holds(v) {
			return fmt.Errorf("can only create, update and delete PersistentVolumes of %s on node %q", claim.Provisioner, n.node)
		}
	}
	return nil
}

// holds reports whether a volume is in the node's own folder.
func (n nodeWrite) holds(v *corev1.PersistentVolume) bool {
	return v.Spec.Local != nil && v.Annotations[claim.ProvisionedBy] == claim.Provisioner && onlyOn(v, n.node)
}

// onlyOn reports whether a volume can be used only on the node.
func onlyOn(v *corev1.PersistentVolume, node string) bool {
	return v.Spec.NodeAffinity != nil && equality.Semantic.DeepEqual(v.Spec.NodeAffinity.Required,
		&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}})
}

func (n nodeWrite) pod(ctx context.Context) error {
	switch {
	case n.Subresource == "" && n.Operation == admission.Create:
		return n.mirror(ctx, n.Object.(*corev1.Pod))
	case n.Subresource == "" && n.Operation == admission.Delete:
		return n.requireBoundToNode("delete pods")
	case n.Subresource == "status":
		if old := n.Old; old != nil && !maps.Equal(n.Object.GetLabels(), old.GetLabels()) {
			return fmt.Errorf("node %q cannot update labels through pod status", n.node)
		}
		return n.requireBoundToNode("update pod status for pods")
	case n.Subresource == "eviction":
		return n.requireBoundToNode("evict pods")
	}
	return fmt.Errorf(
		"unexpected operation %q on pods subresource %q, "+
			"node can only create and delete mirror pods, update status and evict", n.Operation, n.Subresource)
}

func (n nodeWrite) requireBoundToNode(what string) error {
	if pod, ok := n.Old.(*corev1.Pod); !ok || pod.Spec.NodeName != n.node {
		return fmt.Errorf("node %q can only %s with spec.nodeName set to itself", n.node, what)
	}
	return nil
}

// mirror allows only mirror pods of this node. They must not refer to API objects, because the agent could then read
// those objects.
func (n nodeWrite) mirror(ctx context.Context, pod *corev1.Pod) error {
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; !ok {
		return fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods",
			corev1.MirrorPodAnnotationKey, n.node)
	}
	if pod.Spec.NodeName != n.node {
		return fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", n.node)
	}
	if err := n.ownerOf(ctx, pod); err != nil {
		return err
	}
	if pod.Spec.ServiceAccountName != "" {
		return fmt.Errorf("node %q can not create pods that reference a service account", n.node)
	}
	found := len(pod.Spec.ResourceClaims) > 0
	volume.All().References(pod, func(string, string) { found = true })
	if found {
		return fmt.Errorf(
			"node %q can not create pods that reference secrets, configmaps, persistentvolumeclaims or resourceclaims", n.node)
	}
	return nil
}

// ownerOf requires that the node is the pod's only owner, if the pod has owners.
func (n nodeWrite) ownerOf(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.OwnerReferences) == 0 {
		return nil
	}
	owner := pod.OwnerReferences[0]
	if len(pod.OwnerReferences) > 1 || owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != n.node ||
		owner.Controller == nil || !*owner.Controller || owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", n.node)
	}
	node, err := client.Get[*corev1.Node](ctx, n.client, "", n.node)
	if err != nil {
		return err
	}
	if owner.UID != node.UID {
		return fmt.Errorf("node %s UID mismatch: expected %s got %s", n.node, owner.UID, node.UID)
	}
	return nil
}

// nodeItself allows the agent to write its own Node, except for taints and labels of the cluster, which would attract
// other pods, and the ranges of its pods and its WireGuard key, which could be those of another node.
func (n nodeWrite) nodeItself(ctx context.Context) error {
	if n.Name != n.node {
		return fmt.Errorf("node %q is not allowed to modify node %q", n.node, n.Name)
	}
	next, ok := n.Object.(*corev1.Node)
	if !ok {
		return nil
	}
	var was corev1.Node
	if old, ok := n.Old.(*corev1.Node); ok {
		was = *old
		if !equality.Semantic.DeepEqual(next.Spec.Taints, was.Spec.Taints) {
			return fmt.Errorf("node %q is not allowed to modify taints", n.node)
		}
		if !equality.Semantic.DeepEqual(next.OwnerReferences, was.OwnerReferences) {
			return fmt.Errorf("node %q is not allowed to modify ownerReferences", n.node)
		}
	}
	if next.Spec.PodCIDR != was.Spec.PodCIDR || !slices.Equal(next.Spec.PodCIDRs, was.Spec.PodCIDRs) {
		return fmt.Errorf("node %q is not allowed to modify podCIDRs", n.node)
	}
	if labels := forbiddenLabels(next.Labels, was.Labels); len(labels) > 0 {
		return fmt.Errorf("node %q is not allowed to modify labels: %s", n.node, strings.Join(labels, ", "))
	}
	return n.ownKey(ctx, next, &was)
}

// ownKey refuses the WireGuard key of another node: packets to that one would be lost.
func (n nodeWrite) ownKey(ctx context.Context, next, was *corev1.Node) error {
	if key := next.Annotations[podcidr.WireGuardKey]; key == "" || key == was.Annotations[podcidr.WireGuardKey] {
		return nil
	}
	all, err := client.List[*corev1.Node](ctx, n.client, client.Selector{})
	for _, other := range all {
		if other.Name != n.node && podcidr.HasKeyOf(next, other) {
			return fmt.Errorf("node %q is not allowed to have the WireGuard key of node %q", n.node, other.Name)
		}
	}
	return err
}

// forbiddenLabels returns the changed labels that an agent must not set.
func forbiddenLabels(next, was map[string]string) []string {
	var wrong []string
	all := map[string]string{}
	maps.Copy(all, next)
	maps.Copy(all, was)
	for key := range all {
		value, is := next[key]
		if old, had := was[key]; is == had && value == old || kubeletLabel(key) {
			continue
		}
		wrong = append(wrong, key)
	}
	slices.Sort(wrong)
	return wrong
}

// kubeletLabel reports whether a kubelet may set the label on its Node: labels outside of Kubernetes' domains, and the
// kubelet's own (upstream: kubeletapis.IsKubeletLabel).
func kubeletLabel(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	if domain == key || !inDomain(domain, "kubernetes.io") && !inDomain(domain, "k8s.io") {
		return true
	}
	if inDomain(domain, "kubelet.kubernetes.io") || inDomain(domain, "node.kubernetes.io") {
		return true
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelInstanceType,
		corev1.LabelInstanceTypeStable,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion,
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return true
	}
	return false
}

func inDomain(domain, of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }

// token allows only tokens of a pod's service account that are bound to the pod, for pods on this node.
func (n nodeWrite) token(ctx context.Context) error {
	req, ok := n.Object.(*authenticationv1.TokenRequest)
	if !ok || n.Subresource != "token" {
		return nil
	}
	ref := req.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return errors.New("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return errors.New("node requested token with a pod binding without a uid")
	}
	pod, err := client.Get[*corev1.Pod](ctx, n.client, n.Namespace, ref.Name)
	switch {
	case err != nil:
		return err
	case pod.UID != ref.UID:
		return fmt.Errorf(
			"the UID in the bound object reference (%s) does not match the UID in record. "+
				"The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != n.node:
		return errors.New("node requested token bound to a pod scheduled on a different node")
	case pod.Spec.ServiceAccountName != n.Name:
		return fmt.Errorf("node requested token for service account %q, the pod runs as %q", n.Name,
			pod.Spec.ServiceAccountName)
	}
	return nil
}

// certificate allows only PodCertificateRequests for a pod on this node whose volumes use the signer. The request must
// contain the names and UIDs of the pod, its service account and this node, because the signer trusts them.
func (n nodeWrite) certificate(ctx context.Context) error {
	req, ok := n.Object.(*certificatesv1.PodCertificateRequest)
	if !ok || n.Operation != admission.Create {
		return nil
	}
	spec := &req.Spec
	pod, err := client.Get[*corev1.Pod](ctx, n.client, n.Namespace, spec.PodName)
	if err != nil {
		return err
	}
	account, err := client.Get[*corev1.ServiceAccount](ctx, n.client, n.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	node, err := client.Get[*corev1.Node](ctx, n.client, "", n.node)
	if err != nil {
		return err
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return errors.New("PodCertificateRequests may not be created for mirror pods")
	}
	for _, of := range []struct{ what, is, want string }{
		{"spec.nodeName", string(spec.NodeName), n.node},
		{"spec.nodeUID", string(spec.NodeUID), string(node.UID)},
		{"the node of the pod", pod.Spec.NodeName, n.node},
		{"spec.podUID", string(spec.PodUID), string(pod.UID)},
		{"spec.serviceAccountName", spec.ServiceAccountName, pod.Spec.ServiceAccountName},
		{"spec.serviceAccountUID", string(spec.ServiceAccountUID), string(account.UID)},
	} {
		if of.is != of.want {
			return fmt.Errorf("PodCertificateRequest for pod %q: %s is %q, expected %q", spec.PodName, of.what, of.is, of.want)
		}
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.PodCertificate != nil && p.PodCertificate.SignerName == spec.SignerName
		})
	}) {
		return fmt.Errorf("pod %q does not have a certificate of signer %q in its volumes", spec.PodName, spec.SignerName)
	}
	return nil
}
