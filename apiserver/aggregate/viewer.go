package aggregate

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
)

// customRole is aggregated to the ClusterRole of view.token, which package policy defines. RBAC cannot select all
// groups but one, so that the role lists the groups of custom resources as they come and go.
const customRole = "system:monopod:custom-resources"

// allowView allows view.token to read the custom resources among the kinds. It does not change a role on which an admin
// has set autoupdate to "false".
func (c *Controller) allowView(ctx context.Context, kinds []kind.Resource) error {
	var groups []string
	for i := range kinds {
		if kinds[i].Schema != nil {
			groups = append(groups, kinds[i].GVR.Group)
		}
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	var rules []rbacv1.PolicyRule
	if len(groups) > 0 {
		rules = []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: groups, Resources: []string{"*"}}}
	}
	ref := client.Ref{Resource: client.ClusterRoles, Name: customRole}
	_, err := c.deps.Client.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
		role := cur.(*rbacv1.ClusterRole)
		if equality.Semantic.DeepEqual(role.Rules, rules) || role.Annotations[rbacv1.AutoUpdateAnnotationKey] == "false" {
			return cur, nil
		}
		next := role.DeepCopy()
		next.Rules = rules
		return next, nil
	})
	if apierrors.IsNotFound(err) && rules != nil {
		_, err = c.deps.Client.Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: customRole,
				Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-monopod-viewer": "true"}}, Rules: rules})
	}
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) { // another server on the same state created it first
		return nil
	}
	return err
}
