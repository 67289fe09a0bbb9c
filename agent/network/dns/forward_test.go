package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"k8s.io/utils/clock"
)

// line simulates the network to resolvers, in virtual time.
type line struct {
	mu     sync.Mutex
	sign   time.Duration // latency of every answer
	slow   time.Duration // additional latency of answers to questions other than probes
	silent map[netip.AddrPort]bool
	gone   bool // no route to the resolvers
	asked  int  // number of questions without probes
}

func (l *line) query(ctx context.Context, ask *dns.Msg, at netip.AddrPort) (*dns.Msg, error) {
	l.mu.Lock()
	takes, silent, gone := l.sign, l.silent[at], l.gone
	name := ask.Question[0].Name
	if name != probeName {
		takes += l.slow
		l.asked++
	}
	l.mu.Unlock()
	if gone {
		return nil, errors.New("network is unreachable")
	}
	if silent {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
	case <-time.After(queryTimeout):
		return nil, errors.New("i/o timeout")
	}
	m := new(dns.Msg).SetReply(ask)
	m.Answer = append(m.Answer, record(name+" 60 IN A 192.0.2.80"))
	return m, nil
}

func (l *line) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

var first, second = netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53")

// behind returns a Forwarder that has started to probe its resolvers.
func behind(l *line, resolvers ...netip.AddrPort) *Forwarder {
	f := NewForwarder(func() []netip.AddrPort { return resolvers }, nil, clock.RealClock{}, nil)
	f.query = l.query
	f.Probe()
	return f
}

func a(name string) dns.Question {
	return dns.Question{Name: name, Qtype: dns.TypeA, Qclass: dns.ClassINET}
}

// timed asks a question, and checks that the answer takes at most as long as most.
func timed(t *testing.T, f *Forwarder, name string, most time.Duration) (*dns.Msg, error) {
	t.Helper()
	began := time.Now()
	m, err := f.Ask(t.Context(), a(name), false)
	if took := time.Since(began); took > most {
		t.Errorf("%s took %s, want at most %s", name, took, most)
	}
	return m, err
}

// offline is the maximum latency of an answer while no resolver answers.
const offline = 50 * time.Millisecond

// TestSilentResolvers checks what happens when all resolvers stop answering, and later answer again. From the first
// question on, cached names are answered within 50 ms, and others fail. No question waits for the detection of
// resolvers that answer again.
func TestSilentResolvers(t *testing.T) {
	t.Parallel()
	for _, resolvers := range [][]netip.AddrPort{{first}, {first, second}} {
		synctest.Test(t, func(t *testing.T) {
			l := &line{sign: 3 * time.Millisecond, slow: 20 * time.Millisecond}
			f := behind(l, resolvers...)
			time.Sleep(time.Second)
			if m, err := timed(t, f, "known.example.", offline); err != nil || len(m.Answer) != 1 {
				t.Fatal(m, err)
			}
			time.Sleep(2 * time.Minute)
			l.set(func() { l.silent = map[netip.AddrPort]bool{first: true, second: true} })
			if m, err := timed(t, f, "known.example.", offline); err != nil || m.Answer[0].Header().Ttl != staleTTL {
				t.Errorf("cached name without resolvers: %v, error %v", m, err)
			}
			for i := range 100 { // over 5 s, before and after the detection of silent resolvers
				if _, err := timed(t, f, fmt.Sprintf("unknown%d.example.", i), offline); !errors.Is(err, errNoResolver) {
					t.Errorf("name that is not cached, without resolvers: %v", err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			l.set(func() { l.asked = 0 })
			time.Sleep(queryTimeout + silentPause)
			for range 10 { // only one of them asks the resolvers
				if _, err := timed(t, f, "unknown.example.", 0); !errors.Is(err, errNoResolver) {
					t.Errorf("question after the detection of silent resolvers: %v", err)
				}
			}
			synctest.Wait()
			l.set(func() {
				if l.asked != len(resolvers) {
					t.Errorf("%d silent resolvers were asked %d times, want once each", len(resolvers), l.asked)
				}
				l.silent = nil
			})
			time.Sleep(queryTimeout + silentPause)
			if _, err := timed(t, f, "back.example.", 0); !errors.Is(err, errNoResolver) {
				t.Errorf("first question after the resolver answers again: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
			if m, err := timed(t, f, "back.example.", 0); err != nil || len(m.Answer) != 1 {
				t.Errorf("repetition of that question: %v, error %v", m, err)
			}
			if m, err := timed(t, f, "other.example.", offline); err != nil || len(m.Answer) != 1 {
				t.Errorf("next question: %v, error %v", m, err)
			}
			time.Sleep(maxStale + 2*time.Hour)
			if m := f.cache.stale(keyOf(a("known.example."), false)); m != nil {
				t.Errorf("the cache returned an answer older than maxStale: %v", m)
			}
			time.Sleep(queryTimeout)
		})
	}
}

// TestOfflineFromTheStart checks that no question waits for a resolver after the first probe got no answer.
func TestOfflineFromTheStart(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*line{
		"silent": {silent: map[netip.AddrPort]bool{first: true, second: true}}, "no route": {gone: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := behind(l, first, second)
			time.Sleep(lateFactor * unknownReplyTime)
			for range 40 {
				if _, err := timed(t, f, "unknown.example.", offline); err == nil {
					t.Errorf("%s: got an answer", name)
				}
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(queryTimeout)
		})
	}
}

// TestOneSilentResolver checks that the other resolver answers, though slowly, and that questions do not wait for the
// silent one.
func TestOneSilentResolver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &line{sign: 3 * time.Millisecond, slow: 900 * time.Millisecond}
		f := behind(l, first, second)
		time.Sleep(time.Second)
		l.set(func() { l.silent = map[netip.AddrPort]bool{first: true} })
		for i := range 10 {
			if m, err := timed(t, f, fmt.Sprintf("name%d.example.", i), 960*time.Millisecond); err != nil || len(m.Answer) != 1 {
				t.Errorf("question %d: %v, %v", i, m, err)
			}
		}
		time.Sleep(queryTimeout)
	})
}

// TestSlowResolvers checks that questions wait for slow answers, both of distant and of recursive resolvers.
func TestSlowResolvers(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*line{
		"recursion":           {sign: 2 * time.Millisecond, slow: 1900 * time.Millisecond},
		"far away":            {sign: 600 * time.Millisecond},
		"far away and slow":   {sign: 240 * time.Millisecond, slow: 900 * time.Millisecond},
		"a mobile network":    {sign: 45 * time.Millisecond, slow: 200 * time.Millisecond},
		"on the same machine": {sign: 50 * time.Microsecond, slow: 1500 * time.Millisecond},
		"fast":                {sign: 50 * time.Microsecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := behind(l, first, second)
			for i := range 20 {
				m, err := timed(t, f, fmt.Sprintf("name%d.example.", i), queryTimeout)
				if err != nil || len(m.Answer) != 1 {
					t.Errorf("%s: question %d: %v, %v", name, i, m, err)
				}
			}
			time.Sleep(queryTimeout)
			if l.asked != 20 {
				t.Errorf("%s: 20 questions were asked %d times", name, l.asked)
			}
		})
	}
}

// TestLateSign checks that a resolver that becomes much slower counts as silent only until it answers. The next attempt
// of the client gets the answer.
func TestLateSign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &line{sign: 2 * time.Millisecond}
		f := behind(l, first)
		time.Sleep(time.Second)
		l.set(func() { l.sign = 60 * time.Millisecond })
		if _, err := timed(t, f, "late.example.", offline); !errors.Is(err, errNoResolver) {
			t.Errorf("first attempt: %v", err)
		}
		if m, err := timed(t, f, "late.example.", 70*time.Millisecond); err != nil || len(m.Answer) != 1 {
			t.Errorf("second attempt: %v, error %v", m, err)
		}
		for i := range 10 {
			if m, err := timed(t, f, fmt.Sprintf("name%d.example.", i), 70*time.Millisecond); err != nil || len(m.Answer) != 1 {
				t.Errorf("question %d afterwards: %v, %v", i, m, err)
			}
		}
		time.Sleep(queryTimeout)
	})
}

// stalled is the clock of a process that did not run for a while.
type stalled struct {
	clock.RealClock
	lost atomic.Int64 // nanoseconds
}

func (c *stalled) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.lost.Load())) }

func (c *stalled) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestStalledProcess checks that a resolver does not count as silent if the process did not run while its answer was
// due.
func TestStalledProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, c := &line{sign: 2 * time.Millisecond}, &stalled{}
		f := behind(l, first)
		time.Sleep(time.Second)
		synctest.Wait()
		f.clock, f.states.clock = c, c
		l.set(func() { l.sign = 25 * time.Millisecond })
		time.AfterFunc(5*time.Millisecond, func() { c.lost.Add(int64(100 * time.Millisecond)) })
		time.AfterFunc(15*time.Millisecond, func() { c.lost.Add(int64(100 * time.Millisecond)) })
		if m, err := f.Ask(t.Context(), a("name.example."), false); err != nil || len(m.Answer) != 1 {
			t.Errorf("answer after the stall: %v, error %v", m, err)
		}
		time.Sleep(time.Second)
		l.set(func() { l.silent = map[netip.AddrPort]bool{first: true} })
		if _, err := timed(t, f, "other.example.", lateFactor*unknownReplyTime); !errors.Is(err, errNoResolver) {
			t.Errorf("question to a resolver that is silent afterwards: %v", err)
		}
		time.Sleep(queryTimeout)
	})
}

// TestManySilentQuestions checks that at most maxForwards questions wait for resolvers. Others fail at once.
func TestManySilentQuestions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &line{silent: map[netip.AddrPort]bool{first: true}}
		f := behind(l, first)
		time.Sleep(lateFactor * unknownReplyTime)
		for i := range 2 * maxForwards {
			go f.Ask(t.Context(), a(fmt.Sprintf("name%d.example.", i)), false)
		}
		synctest.Wait()
		l.set(func() {
			if l.asked != maxForwards {
				t.Errorf("%d questions were forwarded, want %d", l.asked, maxForwards)
			}
		})
		time.Sleep(2 * queryTimeout)
		if n := len(f.slots); n != 0 {
			t.Errorf("%d questions still wait", n)
		}
	})
}

// TestSlowResolver checks that a resolver that takes 300 ms does not count as silent.
func TestSlowResolver(t *testing.T) {
	t.Parallel()
	slow, _ := upstream(t, func(q dns.Question, m *dns.Msg) {
		time.Sleep(300 * time.Millisecond)
		m.Answer = append(m.Answer, record(q.Name+" 60 IN A 192.0.2.80"))
	})
	at := start(t, zone(services()), slow)
	for _, name := range []string{"a.example.", "b.example."} {
		if m := ask(t, at, "udp", name, dns.TypeA); len(m.Answer) != 1 {
			t.Errorf("%s: %v", name, m)
		}
	}
}
