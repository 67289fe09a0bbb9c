package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"monopod/apiserver/auth"
)

const algorithm = jose.ES256

// signer is the key that tokens are signed with, ready for use.
type signer struct {
	sign   jose.Signer
	public jose.JSONWebKey
}

// OpenKey reads the PEM file at path, or makes a key there.
func OpenKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return newKey(path)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s: a %T, want an ECDSA key on P-256", path, parsed)
	}
	return key, nil
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, auth.WriteSecret(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func newSigner(path string) (*signer, error) {
	key, err := OpenKey(path)
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

// keyID is how upstream names a key: by what its public part hashes to.
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
