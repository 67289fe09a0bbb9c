package token

import (
	"encoding/json"
	"net/http"

	"github.com/go-jose/go-jose/v4"
)

// Upstream's paths of the OpenID configuration, with which other programs verify service account tokens.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
)

// Configuration serves the OpenID configuration, with the URL of the keys.
func (i *Issuer) Configuration(w http.ResponseWriter, r *http.Request) {
	answer(w, "application/json", map[string]any{
		"issuer": issuer, "jwks_uri": "https://" + r.Host + KeysPath,
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{string(algorithm)},
	})
}

// Keys serves the public key.
func (i *Issuer) Keys(w http.ResponseWriter, _ *http.Request) {
	s, err := i.signer()
	if err != nil {
		http.Error(w, "the service account key is not available", http.StatusInternalServerError)
		return
	}
	answer(w, "application/jwk-set+json", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{s.public}})
}

func answer(w http.ResponseWriter, typ string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", typ)
	w.Header().Set("Cache-Control", "public, max-age=3600")
	w.Write(data)
}
