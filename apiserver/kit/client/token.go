package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RequestToken requests a token of a service account, which the result's status contains.
func RequestToken(ctx context.Context, c Client, namespace, account string,
	spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
	ref := Ref{Resource: ServiceAccounts, Namespace: namespace, Name: account, Subresource: "token"}
	out, err := c.Update(ctx, ref, func(empty Object) (Object, error) {
		req := empty.DeepCopyObject().(*authenticationv1.TokenRequest)
		req.Spec = spec
		return req, nil
	})
	if err != nil {
		return nil, err
	}
	return out.(*authenticationv1.TokenRequest), nil
}

// token performs over HTTP a change of an empty TokenRequest.
func (c *Remote) token(ctx context.Context, ref Ref, change Change) (Object, error) {
	asked, err := change(&authenticationv1.TokenRequest{
		TypeMeta:   metav1.TypeMeta{Kind: "TokenRequest", APIVersion: authenticationv1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
	})
	if err != nil {
		return nil, err
	}
	if _, ok := asked.(*authenticationv1.TokenRequest); !ok {
		return nil, fmt.Errorf("client: the subresource token needs a TokenRequest, got a %T", asked)
	}
	answer, err := c.do(ctx, http.MethodPost, c.pathOf(ref), asked)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	out := &authenticationv1.TokenRequest{}
	return out, json.NewDecoder(answer).Decode(out)
}
