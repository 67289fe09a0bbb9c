// Package token issues and verifies service account tokens: signed JWTs with upstream's claims, bound to
// audiences, an expiry time, the account and optionally a Pod, Secret or Node. A token becomes invalid when the
// object that it is bound to is deleted.
package token

import (
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
)

// claims are upstream's claims of a service account token.
type claims struct {
	jwt.Claims
	Kubernetes kubernetes `json:"kubernetes.io"`
}

type kubernetes struct {
	Namespace      string `json:"namespace,omitempty"`
	ServiceAccount ref    `json:"serviceaccount"`
	Pod            *ref   `json:"pod,omitempty"`
	Secret         *ref   `json:"secret,omitempty"`
	Node           *ref   `json:"node,omitempty"`
}

type ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// Config configures an Issuer.
type Config struct {
	KeyFile string      // read or created on first use
	Clock   clock.Clock // nil: the real one
}

// Issuer issues and verifies tokens.
type Issuer struct {
	clock  clock.Clock
	signer func() (*signer, error)

	mu       sync.Mutex           // guards verified
	verified map[[32]byte]*claims // of tokens whose signature is valid, by their hash

	uses uses
}

// New returns an Issuer.
func New(cfg Config) *Issuer {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Issuer{
		clock: cfg.Clock, verified: map[[32]byte]*claims{}, uses: newUses(),
		signer: sync.OnceValues(func() (*signer, error) { return newSigner(cfg.KeyFile) }),
	}
}

// issuer is upstream's default issuer.
const issuer = auth.Audience

func (i *Issuer) now() time.Time { return i.clock.Now() }
