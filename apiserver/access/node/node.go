// Package node authorizes the agents of nodes by the ClusterRole system:node. An agent may use only the Secrets,
// ConfigMaps, claims, volumes and ResourceClaims that the pods of its node refer to, and the ResourceSlices of its
// node. The admission plugin NodeRestriction limits what agents write.
package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"monopod/apiserver/access/rbac"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/volume"
)

const role = "system:node"

// Authorizer authorizes agents. It passes requests of other users, and requests of agents that it refuses, to RBAC.
type Authorizer struct {
	*rbac.Authorizer
	Client client.Client
}

var _ auth.Authorizer = Authorizer{}

// Authorize implements auth.Authorizer.
func (z Authorizer) Authorize(ctx context.Context, a auth.Attributes) (bool, string, error) {
	name, ok := strings.CutPrefix(a.User.Name, auth.NodePrefix)
	if !ok || name == "" || !slices.Contains(a.User.Groups, auth.Nodes) {
		return z.Authorizer.Authorize(ctx, a)
	}
	refusal, err := z.refuse(ctx, name, &a)
	if refusal == "" && err == nil {
		return true, "", nil
	}
	if err != nil {
		return false, "", err
	}
	allowed, reason, err := z.Authorizer.Authorize(ctx, a)
	if !allowed && reason == "" {
		reason = refusal
	}
	return allowed, reason, err
}

const notAllowed = "not allowed for agents"

// refuse returns why the agent of the node is refused, or an empty string if it is allowed.
func (z Authorizer) refuse(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	r, err := client.Get[*rbacv1.ClusterRole](ctx, z.Client, "", role)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("ClusterRole %q not found", role), nil
	}
	if err != nil || !rbac.Allows(r.Rules, a) {
		return notAllowed, err
	}
	return z.restrict(ctx, node, a)
}

// restrict returns why a request that the role allows is refused: its object does not belong to the node (upstream:
// NodeAuthorizer with AuthorizeNodeWithSelectors).
func (z Authorizer) restrict(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	switch (schema.GroupResource{Group: a.Group, Resource: a.Resource}) {
	case client.Secrets.GroupResource(), client.ConfigMaps.GroupResource():
		if a.Namespace == "" {
			return "can only read namespaced object of this type", nil
		}
		why, err := z.related(ctx, node, a)
		if why == "" || err != nil || a.Name == "" || a.Resource != client.Secrets.Resource {
			return why, err
		}
		return z.volumeSecret(ctx, node, a)
	case client.PersistentVolumeClaims.GroupResource():
		if a.Subresource == "status" && a.Verb == "get" {
			return "can only get/update/patch this type", nil
		}
		return z.related(ctx, node, a)
	case client.PersistentVolumes.GroupResource():
		return z.related(ctx, node, a)
	case client.VolumeAttachments.GroupResource():
		return z.attachment(ctx, node, a)
	case client.ServiceAccounts.GroupResource():
		return z.runsAs(ctx, node, a)
	case client.Pods.GroupResource():
		return z.pods(ctx, node, a)
	case client.Nodes.GroupResource():
		return ownNode(node, a), nil
	case client.Leases.GroupResource():
		if a.Namespace != corev1.NamespaceNodeLease {
			return fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease), nil
		}
		return sameName(node, a, "node lease"), nil
	case client.PodCertificateRequests.GroupResource():
		return z.certificates(ctx, node, a)
	case client.ResourceClaims.GroupResource():
		return z.related(ctx, node, a)
	case client.ResourceSlices.GroupResource():
		return z.slices(ctx, node, a)
	case client.CSINodes.GroupResource():
		return sameName(node, a, "CSINode"), nil
	}
	return "", nil
}

// attachment allows an agent to read the VolumeAttachments of its node.
func (z Authorizer) attachment(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	if a.Name == "" {
		return "No Object name found", nil
	}
	v, err := client.Get[*storagev1.VolumeAttachment](ctx, z.Client, "", a.Name)
	if apierrors.IsNotFound(err) || err == nil && v.Spec.NodeName != node {
		return unrelated(node), nil
	}
	return "", err
}

// volumeSecret allows an agent to read the Secrets that CSI drivers need on its node: those that the PersistentVolumes
// of its pods name.
func (z Authorizer) volumeSecret(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	pods, err := z.podsOn(ctx, node, "")
	if err != nil {
		return "", err
	}
	for _, pod := range pods {
		for _, name := range references(pod, "persistentvolumeclaims") {
			v, err := z.volumeOf(ctx, pod.Namespace, name)
			if err != nil {
				return "", err
			}
			if v == nil || v.Spec.CSI == nil {
				continue
			}
			for _, ref := range []*corev1.SecretReference{v.Spec.CSI.NodeStageSecretRef, v.Spec.CSI.NodePublishSecretRef,
				v.Spec.CSI.NodeExpandSecretRef} {
				if ref != nil && ref.Namespace == a.Namespace && ref.Name == a.Name {
					return "", nil
				}
			}
		}
	}
	return unrelated(node), nil
}

// volumeOf returns the volume that a claim is bound to, or nil.
func (z Authorizer) volumeOf(ctx context.Context, namespace, claim string) (*corev1.PersistentVolume, error) {
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, z.Client, namespace, claim)
	if err != nil || c.Spec.VolumeName == "" {
		return nil, ignoreNotFound(err)
	}
	v, err := client.Get[*corev1.PersistentVolume](ctx, z.Client, "", c.Spec.VolumeName)
	if err != nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Namespace != namespace || v.Spec.ClaimRef.Name != claim {
		return nil, ignoreNotFound(err)
	}
	return v, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// sameName requires that the object has the name of the node. NodeRestriction checks the name of a new object.
func sameName(node string, a *auth.Attributes, kind string) string {
	if a.Verb != "create" && a.Name != node {
		return fmt.Sprintf("can only access %s with the same name as the requesting node", kind)
	}
	return ""
}

// ownNode allows an agent to read its own Node, even before it exists.
func ownNode(node string, a *auth.Attributes) string {
	switch {
	case a.Verb != "get" && a.Verb != "list" && a.Verb != "watch", a.Name == node:
		return ""
	case a.Name == "":
		return fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node)
	}
	return fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, a.Name)
}

// pods allows an agent to read the pods that are bound to its node.
func (z Authorizer) pods(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	switch {
	case a.Verb != "get" && a.Verb != "list" && a.Verb != "watch":
		return "", nil
	case slices.Contains(a.Fields, fields.Requirement{Operator: selection.Equals, Field: "spec.nodeName", Value: node}):
		return "", nil
	case a.Name == "":
		return "can only list/watch pods with spec.nodeName field selector", nil
	}
	pod, err := client.Get[*corev1.Pod](ctx, z.Client, a.Namespace, a.Name)
	if apierrors.IsNotFound(err) || err == nil && pod.Spec.NodeName != node {
		return unrelated(node), nil
	}
	return "", err
}

// certificates allows an agent to read the PodCertificateRequests of pods of its node. NodeRestriction checks those
// that it creates.
func (z Authorizer) certificates(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	switch {
	case a.Verb == "create",
		slices.Contains(a.Fields, fields.Requirement{Operator: selection.Equals, Field: "spec.nodeName", Value: node}):
		return "", nil
	case a.Name == "":
		return "can only list/watch podcertificaterequests with spec.nodeName field selector", nil
	}
	r, err := client.Get[*certificatesv1.PodCertificateRequest](ctx, z.Client, a.Namespace, a.Name)
	if apierrors.IsNotFound(err) || err == nil && string(r.Spec.NodeName) != node {
		return unrelated(node), nil
	}
	return "", err
}

// slices allows an agent to list and delete the ResourceSlices of its node. NodeRestriction checks those that it
// writes.
func (z Authorizer) slices(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	switch {
	case a.Verb == "create",
		slices.Contains(a.Fields,
			fields.Requirement{Operator: selection.Equals, Field: resourcev1.ResourceSliceSelectorNodeName, Value: node}):
		return "", nil
	case a.Name == "":
		return "can only list/watch/deletecollection resourceslices with nodeName field selector", nil
	}
	slice, err := client.Get[*resourcev1.ResourceSlice](ctx, z.Client, "", a.Name)
	if apierrors.IsNotFound(err) || err == nil && (slice.Spec.NodeName == nil || *slice.Spec.NodeName != node) {
		return unrelated(node), nil
	}
	return "", err
}

func unrelated(node string) string {
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}

// related allows an agent to read an object to which a pod on its node refers.
func (z Authorizer) related(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	if a.Name == "" {
		return "No Object name found", nil
	}
	pods, err := z.podsOn(ctx, node, a.Namespace)
	if err != nil {
		return "", err
	}
	for _, pod := range pods {
		found, err := z.refers(ctx, pod, a)
		if found || err != nil {
			return "", err
		}
	}
	return unrelated(node), nil
}

func (z Authorizer) runsAs(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	if a.Name == "" {
		return "can only create tokens for individual service accounts", nil
	}
	pods, err := z.podsOn(ctx, node, a.Namespace)
	if err != nil || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.ServiceAccountName == a.Name }) {
		return "", err
	}
	return unrelated(node), nil
}

// podsOn lists the pods that are bound to the node.
func (z Authorizer) podsOn(ctx context.Context, node, namespace string) ([]*corev1.Pod, error) {
	return client.List[*corev1.Pod](ctx, z.Client, client.Selector{
		Namespace: namespace, Fields: fields.OneTermEqualSelector("spec.nodeName", node)})
}

func (z Authorizer) refers(ctx context.Context, pod *corev1.Pod, a *auth.Attributes) (bool, error) {
	if a.Resource != "persistentvolumes" {
		return slices.Contains(references(pod, a.Resource), a.Name), nil
	}
	for _, name := range references(pod, "persistentvolumeclaims") {
		claim, err := client.Get[*corev1.PersistentVolumeClaim](ctx, z.Client, pod.Namespace, name)
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if err == nil && claim.Spec.VolumeName == a.Name {
			return true, nil
		}
	}
	return false, nil
}

// references returns the names of the objects of a resource that the pod uses in its namespace.
func references(pod *corev1.Pod, resource string) []string {
	if resource == client.ResourceClaims.Resource {
		return slices.Collect(maps.Keys(maps.Collect(resourceclaim.PodClaims(pod))))
	}
	var names []string
	volume.All().References(pod, func(of, name string) {
		if of == resource {
			names = append(names, name)
		}
	})
	return names
}
