// Package token issues and checks the tokens of service accounts: signed JWTs
// with upstream's claims, bound to an audience, a time, the account and, where
// asked for, a Pod, Secret or Node. A token ends with what it is bound to.
package token

import (
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/utils/clock"

	"monopod/apiserver/access/auth"
)

// claims are upstream's.
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

// Config of an Issuer.
type Config struct {
	KeyFile string      // read, or made, when it is first needed
	Clock   clock.Clock // nil: the real one
}

// Issuer issues tokens and knows its own again.
type Issuer struct {
	clock  clock.Clock
	signer func() (*signer, error)

	mu   sync.Mutex // guards seen
	seen map[[32]byte]*claims
}

// New makes an Issuer.
func New(cfg Config) *Issuer {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Issuer{
		clock: cfg.Clock, seen: map[[32]byte]*claims{},
		signer: sync.OnceValues(func() (*signer, error) { return newSigner(cfg.KeyFile) }),
	}
}

// issuer is who upstream's tokens are from, by default.
const issuer = auth.Audience

func (i *Issuer) now() time.Time { return i.clock.Now() }
