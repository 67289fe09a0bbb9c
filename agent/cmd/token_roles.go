package cmd

import (
	"context"
	"fmt"
	"net/http"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/bootstraptoken"
	"monopod/apiserver/kit/local"
)

// nodeRoleName is the name of the ClusterRole of Monopod's agents on other machines, and of its binding.
const nodeRoleName = "monopod:node"

const (
	clusterRoles        = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	clusterRoleBindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
)

// ensureNodeRoles creates the roles and bindings that machines need to join and to be nodes: kubeadm's, and what
// Monopod's agent needs in addition to system:node. Bindings that exist are kept as they are; the role is replaced by
// this version's.
func ensureNodeRoles(ctx context.Context, server *local.Server) error {
	role := nodeRole()
	err := post(ctx, server, clusterRoles, role)
	if apierrors.IsAlreadyExists(err) {
		err = send(ctx, server, http.MethodPut, clusterRoles+"/"+role.Name, role)
	}
	if err != nil {
		return fmt.Errorf("ClusterRole %s: %w", role.Name, err)
	}
	for _, b := range []struct{ name, role, group string }{
		{"kubeadm:kubelet-bootstrap", "system:node-bootstrapper", bootstraptoken.Group},
		{"kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
			bootstraptoken.Group},
		{"kubeadm:node-autoapprove-certificate-rotation",
			"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", auth.Nodes},
		{nodeRoleName, nodeRoleName, auth.Nodes},
	} {
		err := post(ctx, server, clusterRoleBindings, &rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: b.name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: b.group}},
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("ClusterRoleBinding %s: %w", b.name, err)
		}
	}
	return nil
}

// nodeRole returns what Monopod's agent needs beside system:node: it also forwards Services, enforces NetworkPolicies,
// and provisions local volumes. The admission plugin NodeRestriction limits what it writes to its own node.
func nodeRole() *rbacv1.ClusterRole {
	read := []string{"get", "list", "watch"}
	reads := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: read}
	}
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: nodeRoleName},
		Rules: []rbacv1.PolicyRule{
			reads("", "services", "endpoints", "nodes", "namespaces", "pods", "persistentvolumes", "persistentvolumeclaims"),
			reads("discovery.k8s.io", "endpointslices"),
			reads("networking.k8s.io", "networkpolicies", "servicecidrs"),
			reads("storage.k8s.io", "storageclasses", "csidrivers"),
			reads("node.k8s.io", "runtimeclasses"),
			{APIGroups: []string{""}, Resources: []string{"persistentvolumes"},
				Verbs: []string{"create", "delete", "patch", "update"}},
			{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims/status"}, Verbs: []string{"patch", "update"}},
		},
	}
}
