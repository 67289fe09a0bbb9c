package registry

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// Tokens completes a TokenRequest for a service account. It reads the object that the token is bound to from c.
type Tokens func(ctx context.Context, c client.Client, account *corev1.ServiceAccount,
	req *authenticationv1.TokenRequest) error

// subresourceRegistry returns the functions that Subresource.Update of a subresource of res needs.
func (r *Registry) subresourceRegistry(res *Resource, sub string) kind.Registry {
	return kind.Registry{
		Client: r, Token: r.tokens, DryRun: DryRun, IsDryRun: isDryRun, Now: r.now,
		Serves: func(gvr schema.GroupVersionResource) bool { return r.Find(gvr) != nil },
		Check:  func(obj Object, p *metav1.Preconditions) error { return preconditions(res, obj, p) },
		Admit: func(ctx context.Context, obj, old Object) error {
			req := r.request(ctx, admission.Create, res, sub, obj, old)
			if err := r.admission.Mutate(ctx, req); err != nil {
				return err
			}
			return r.admission.Validate(ctx, req)
		},
	}
}
