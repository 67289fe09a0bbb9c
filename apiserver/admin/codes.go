package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Paths of the API server.
const (
	Path     = "/monopod/login"   // POST by an admin, ?view=true for the view token: an Answer
	Exchange = "/monopod/session" // POST of {"code": …} by anybody: a Session
)

const (
	// validity is how long a code can be exchanged.
	validity = time.Minute
	// maxCodes is the maximum number of codes that have not been exchanged.
	maxCodes = 100
)

// Answer is a new code.
type Answer struct {
	Code    string    `json:"code"`
	Expires time.Time `json:"expires"`
}

// Session is the response to a code.
type Session struct {
	Token string `json:"token"`
}

var (
	errTooManyCodes = errors.New("too many sign-in codes have not been used: wait a minute")
	errInvalidCode  = errors.New(
		"the address has been used, or it is older than a minute: run monopod dashboard again for another one")
)

// codes exchanges sign-in codes for tokens, each once.
type codes struct {
	clock clock.PassiveClock

	mu    sync.Mutex                   // guards valid
	valid map[[sha256.Size]byte]signIn // by hash of the code
}

type signIn struct {
	token string
	until time.Time
}

func newCodes(clk clock.PassiveClock) *codes {
	return &codes{clock: clk, valid: map[[sha256.Size]byte]signIn{}}
}

// issue returns a new code for a token.
func (c *codes) issue(token string) (Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	if len(c.valid) >= maxCodes {
		return Answer{}, errTooManyCodes
	}
	a := Answer{Code: rand.Text(), Expires: c.clock.Now().Add(validity)}
	c.valid[sha256.Sum256([]byte(a.Code))] = signIn{token, a.Expires}
	return a, nil
}

// redeem returns the token of a code, and makes the code invalid.
func (c *codes) redeem(code string) (token string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	key := sha256.Sum256([]byte(code)) // so that the time of the lookup reveals nothing about other codes
	s, ok := c.valid[key]
	if !ok {
		return "", errInvalidCode
	}
	delete(c.valid, key)
	return s.token, nil
}

// expire removes expired codes. The caller holds mu.
func (c *codes) expire() {
	now := c.clock.Now()
	maps.DeleteFunc(c.valid, func(_ [sha256.Size]byte, s signIn) bool { return !now.Before(s.until) })
}
