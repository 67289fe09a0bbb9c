package registry

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/registry/policy"
)

// Bootstrap creates the objects of a new cluster: four namespaces with their default service accounts, and two priority
// classes. It does not change existing objects.
func (r *Registry) Bootstrap(ctx context.Context) error {
	var all []client.Object
	for _, name := range systemNamespaces() {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	all = append(all,
		priorityClassOf(policy.SystemNodeCritical,
			"Used for system critical pods that must not be moved from their current node."),
		priorityClassOf(policy.SystemClusterCritical,
			"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
	)
	if err := createMissing(ctx, r, all); err != nil {
		return err
	}
	var accounts []client.Object // their namespaces must exist first
	for _, name := range systemNamespaces() {
		accounts = append(accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}})
	}
	return createMissing(ctx, r, accounts)
}

// createMissing creates the missing objects concurrently, so that they share a commit.
func createMissing(ctx context.Context, c client.Client, all []client.Object) error {
	group, ctx := guard.With(ctx)
	for _, obj := range all {
		group.Do(func() error {
			if _, err := c.Create(ctx, obj); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
	return group.Wait()
}

// systemNamespaces returns the names of the namespaces of a new cluster.
func systemNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

func priorityClassOf(name, description string) client.Object {
	value, _ := policy.SystemPriority(name)
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description}
}
