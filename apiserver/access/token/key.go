package token

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"monopod/apiserver/auth"
)

const algorithm = jose.ES256

// signer is the parsed key that signs tokens.
type signer struct {
	sign   jose.Signer
	public jose.JSONWebKey
}

func newSigner(path string) (*signer, error) {
	key, err := auth.OpenKey(path)
	if err != nil {
		return nil, err
	}
	id, err := keyID(key.Public())
	if err != nil {
		return nil, err
	}
	private := jose.JSONWebKey{Algorithm: string(algorithm), Key: key, KeyID: id, Use: "sig"}
	sign, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: private}, nil)
	return &signer{sign: sign, public: private.Public()}, err
}

// keyID returns upstream's ID of a key: a hash of its public part.
func keyID(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

func (s *signer) token(c *claims) (string, error) {
	return jwt.Signed(s.sign).Claims(c).Serialize()
}
