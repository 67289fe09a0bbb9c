package registry

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
)

// Tokens fills in the defaults and the status of a request for a token of account;
// what the token is to be bound to is in c.
type Tokens func(ctx context.Context, c client.Client, account *corev1.ServiceAccount, req *authenticationv1.TokenRequest) error

// requestToken is the creation of a token below a service account: change gets an
// empty TokenRequest, and what it returns comes back filled in. Nothing is stored.
func (r *Registry) requestToken(ctx context.Context, ref client.Ref, change client.Change) (Object, error) {
	account, err := client.Get[*corev1.ServiceAccount](ctx, r, ref.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	asked, err := change(&authenticationv1.TokenRequest{
		TypeMeta:   metav1.TypeMeta{Kind: "TokenRequest", APIVersion: authenticationv1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
	})
	if err != nil {
		return nil, err
	}
	req, ok := asked.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, errBadRequest(fmt.Sprintf("a token is asked for with a TokenRequest, not with a %T", asked))
	}
	if err := r.admitPosted(ctx, client.ServiceAccounts, "token", req, account); err != nil {
		return nil, err
	}
	if r.tokens == nil {
		return nil, apierrors.NewServiceUnavailable("no tokens are issued here")
	}
	if err := r.tokens(ctx, r, account, req); err != nil {
		return nil, err
	}
	req.CreationTimestamp = r.now()
	if isDryRun(ctx) {
		req.Status = authenticationv1.TokenRequestStatus{}
	}
	return req, nil
}
