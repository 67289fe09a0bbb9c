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

// createBasics creates what every cluster has: four namespaces, each with its default service
// account, and two priority classes. Existing objects do not change.
func createBasics(ctx context.Context, c client.Client) error {
	var all []client.Object
	for _, name := range everyNamespace() {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	all = append(all,
		priorityClassOf(policy.SystemNodeCritical,
			"Used for system critical pods that must not be moved from their current node."),
		priorityClassOf(policy.SystemClusterCritical,
			"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
	)
	if err := createAll(ctx, c, all); err != nil {
		return err
	}
	var accounts []client.Object // their namespaces must exist first
	for _, name := range everyNamespace() {
		accounts = append(accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}})
	}
	return createAll(ctx, c, accounts)
}

// createAll creates the missing objects concurrently, so that they share a commit.
func createAll(ctx context.Context, c client.Client, all []client.Object) error {
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

// everyNamespace returns the names of the namespaces of every cluster.
func everyNamespace() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

func priorityClassOf(name, description string) client.Object {
	value, _ := policy.SystemPriority(name)
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description}
}
