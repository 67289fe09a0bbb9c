package virtual

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
)

// tokens answers requests for service account tokens.
func (v *virtual) tokens() Answers {
	at := client.ServiceAccounts
	at.Resource += "/token"
	return Answers{at: {
		Create: func(ctx context.Context, ref client.Ref, obj kind.Object) (runtime.Object, error) {
			obj.GetObjectKind().SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"))
			return v.API.Update(ctx, ref, func(kind.Object) (kind.Object, error) { return obj, nil })
		},
	}}
}
