package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// config is the target and the duration.
type config struct {
	dataDir          string
	duration, settle time.Duration
	seed             uint64
	workers          int
	memory           float64 // maximum growth of the server's memory, in bytes
}

// namespace contains the objects of the requests.
const namespace = "abuse"

// run abuses the server. It fails if the server answers 500, was restarted, or uses more resources at rest than before.
func run(ctx context.Context, c config, out io.Writer) error {
	server, err := open(c.dataDir)
	if err != nil {
		return err
	}
	if server.adversary, err = newAdversary(); err != nil {
		return err
	}
	defer server.adversary.close()
	users, err := server.prepare(ctx)
	if err != nil {
		return err
	}
	// A first, short run lets the server create what it creates on first use.
	warm := c
	warm.duration, warm.seed = min(c.duration/4, 15*time.Second), ^c.seed
	server.abuse(ctx, warm, users)
	before, err := server.atRest(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "seed %d\nbefore: %v\n", c.seed, before)
	heard := server.abuse(ctx, c, users)
	fmt.Fprintln(out, heard)
	if err := server.cleanUp(ctx); err != nil {
		return err
	}
	after, err := server.settled(ctx, before, c)
	fmt.Fprintf(out, "after:  %v\n", after)
	return errors.Join(err, heard.err())
}

// abuse sends requests for the duration. Each client has its own random numbers, so the seed determines its requests.
func (s *server) abuse(ctx context.Context, c config, users []user) *tally {
	ctx, cancel := context.WithTimeout(ctx, c.duration)
	defer cancel()
	heard := &tally{codes: map[string]int{}, mistakes: map[string]int{}}
	var workers sync.WaitGroup
	for n := range c.workers {
		workers.Go(func() {
			a := &abuser{server: s, rand: rand.New(rand.NewPCG(c.seed, uint64(n))), users: users, heard: heard}
			for ctx.Err() == nil {
				a.act(ctx)
			}
		})
	}
	workers.Wait()
	return heard
}

// tally counts the server's responses.
type tally struct {
	mu       sync.Mutex // guards the maps
	codes    map[string]int
	mistakes map[string]int // responses with status 500, by request
}

func (t *tally) add(what string, code int, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.codes[fmt.Sprint(code)]++
	if code == http.StatusInternalServerError && !others(text) && len(t.mistakes) < 100 {
		t.mistakes[fmt.Sprintf("%s: %.300s", what, text)]++
	}
}

// others reports whether the adversary caused a status 500, which upstream answers too: a failed call of a webhook, or
// a patch that replaces the object by a list.
func others(text string) bool {
	text = strings.Join(strings.Fields(text), " ") // YAML wraps lines
	for _, cause := range []string{"failed calling webhook", "conversion webhook for", "json: cannot unmarshal array",
		"attempted to modify the object, which is not supported for this operation"} {
		if strings.Contains(text, cause) {
			return true
		}
	}
	return false
}

// dropped counts requests without a response.
func (t *tally) dropped() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.codes["none"]++
}

func (t *tally) String() string {
	var parts []string
	for code, n := range t.codes {
		parts = append(parts, fmt.Sprintf("%s: %d", code, n))
	}
	slices.Sort(parts)
	return "responses: " + strings.Join(parts, ", ")
}

func (t *tally) err() error {
	var errs []error
	for m, n := range t.mistakes {
		errs = append(errs, fmt.Errorf("status 500, %d times: %s", n, m))
	}
	return errors.Join(errs...)
}
