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

// Paths of the server.
const (
	Path     = "/monopod/login"   // POST by an admin, ?view=true for the view token: an Answer
	Exchange = "/monopod/session" // POST of Given by anybody: a Session
)

const (
	// Valid is how long a code can be exchanged.
	Valid = time.Minute
	// maxCodes is the maximum number of codes that wait for their page.
	maxCodes = 100
)

// Answer is a new code.
type Answer struct {
	Code    string    `json:"code"`
	Expires time.Time `json:"expires"`
}

// Given is what a page has.
type Given struct {
	Code string `json:"code"`
}

// Session is what a page gets for it.
type Session struct {
	Token string `json:"token"`
}

// Errors of Desk.
var (
	ErrMany    = errors.New("too many codes wait for their pages: wait a minute")
	ErrUnknown = errors.New(
		"the address has been used, or it is older than a minute: ask monopod dashboard for another one")
)

// Desk issues codes and takes them back.
type Desk struct {
	clock clock.PassiveClock

	mu    sync.Mutex // guards codes
	codes map[[sha256.Size]byte]issued
}

type issued struct {
	token string
	until time.Time
}

// NewDesk returns a Desk without codes.
func NewDesk(clk clock.PassiveClock) *Desk {
	return &Desk{clock: clk, codes: map[[sha256.Size]byte]issued{}}
}

// Issue returns a code for a token.
func (d *Desk) Issue(token string) (Answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire()
	if len(d.codes) >= maxCodes {
		return Answer{}, ErrMany
	}
	a := Answer{Code: rand.Text(), Expires: d.clock.Now().Add(Valid)}
	d.codes[sha256.Sum256([]byte(a.Code))] = issued{token, a.Expires}
	return a, nil
}

// Redeem returns the token of a code, which is worth nothing afterwards.
func (d *Desk) Redeem(code string) (token string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire()
	key := sha256.Sum256([]byte(code)) // how long the lookup takes says nothing about other codes
	found, ok := d.codes[key]
	if !ok {
		return "", ErrUnknown
	}
	delete(d.codes, key)
	return found.token, nil
}

// expire forgets old codes, for callers that hold mu.
func (d *Desk) expire() {
	now := d.clock.Now()
	maps.DeleteFunc(d.codes, func(_ [sha256.Size]byte, i issued) bool { return !now.Before(i.until) })
}
