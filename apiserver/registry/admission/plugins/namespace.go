package plugins

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// namespaceLifecycle rejects creations in missing or terminating namespaces, and the deletion of the system namespaces.
func namespaceLifecycle(c client.Client) admission.Plugin {
	return admission.Plugin{Name: "NamespaceLifecycle", Mutate: func(ctx context.Context, r *admission.Request) error {
		switch {
		case r.Operation == admission.Create && r.Resource.Namespaced && r.Namespace != "": // an empty one fails validation
			return rejectTerminating(ctx, c, r)
		case r.Operation == admission.Delete && r.Resource.GVR == client.Namespaces:
			switch r.Name {
			// Upstream deletes and recreates kube-node-lease.
			case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
				return r.Forbid(errors.New("this namespace may not be deleted"))
			}
		}
		return nil
	}}
}

// rejectTerminating rejects a creation in a missing or terminating namespace.
func rejectTerminating(ctx context.Context, c client.Client, r *admission.Request) error {
	ns, err := client.Get[*corev1.Namespace](ctx, c, "", r.Namespace)
	if err != nil {
		return err
	}
	if ns.DeletionTimestamp == nil {
		return nil
	}
	refused := r.Forbid(fmt.Errorf("unable to create new content in namespace %s because it is being terminated", ns.Name))
	var status *apierrors.StatusError
	if errors.As(refused, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace",
			Message: fmt.Sprintf("namespace %s is being terminated", ns.Name)})
	}
	return refused
}
