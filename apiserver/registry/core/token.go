package core

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
)

func tokenSubresource() kind.Subresource {
	sub := kind.Posted("token", authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		func() kind.Object { return new(authenticationv1.TokenRequest) })
	sub.Update = requestToken
	return sub
}

// requestToken issues a token for a service account. change gets an empty TokenRequest and returns the client's, to
// which requestToken adds the token. It stores nothing; a dry run returns no token.
func requestToken(ctx context.Context, in kind.Registry, ref client.Ref, change client.Change) (kind.Object, error) {
	account, err := client.Get[*corev1.ServiceAccount](ctx, in, ref.Namespace, ref.Name)
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
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the subresource token takes a TokenRequest, not a %T", asked))
	}
	if err := in.Admit(ctx, req, account); err != nil {
		return nil, err
	}
	if in.Token == nil {
		return nil, apierrors.NewServiceUnavailable("the server issues no service account tokens")
	}
	if err := in.Token(ctx, in.Client, account, req); err != nil {
		return nil, err
	}
	req.CreationTimestamp = in.Now()
	if in.IsDryRun(ctx) {
		req.Status = authenticationv1.TokenRequestStatus{}
	}
	return req, nil
}
