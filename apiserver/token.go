package apiserver

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/access/token"
	"monopod/apiserver/client"
	"monopod/apiserver/registry"
)

// tokens answer requests for tokens of service accounts.
func (s *Server) tokens() Answers {
	at := client.ServiceAccounts
	at.Resource += "/token"
	return Answers{at: {
		New:  func() registry.Object { return new(authenticationv1.TokenRequest) },
		Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		Create: func(ctx context.Context, ref client.Ref, obj registry.Object) (runtime.Object, error) {
			obj.GetObjectKind().SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"))
			return s.registry.Update(ctx, ref, func(registry.Object) (registry.Object, error) { return obj, nil })
		},
	}}
}

// openID tells others how to check the tokens of service accounts.
func (s *Server) openID(r chi.Router) {
	if s.Tokens == nil {
		return
	}
	r.Method(http.MethodGet, token.ConfigurationPath, http.HandlerFunc(s.Tokens.Configuration))
	r.Method(http.MethodGet, token.KeysPath, http.HandlerFunc(s.Tokens.Keys))
}
