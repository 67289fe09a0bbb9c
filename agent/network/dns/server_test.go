package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/agent/network/networktest"
	"monopod/apiserver/kit/guard"
)

// start serves the zone on loopback. Its clock does not advance, so no resolver counts as silent on a busy machine.
func start(t testing.TB, z *Zone, resolvers ...netip.AddrPort) (at string) {
	t.Helper()
	forward := NewForwarder(func() []netip.AddrPort { return resolvers }, nil,
		clocktesting.NewFakePassiveClock(time.Now()), nil)
	ctx, cancel := context.WithCancel(context.Background())
	listens, ended := make(chan []netip.AddrPort, 1), make(chan error, 1)
	go func() {
		ended <- NewServer(z, forward, nil, zap.NewNop()).Serve(ctx, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, 0,
			func(at []netip.AddrPort) { listens <- at })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case at := <-listens:
		return at[0].String()
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return ""
	}
}

// listen tries another port if a port that is free for UDP is in use for TCP.
func TestListenTriesOtherPorts(t *testing.T) {
	t.Parallel()
	networktest.Isolated(t, func(netns.NsHandle) {
		lo, err := netlink.LinkByName("lo")
		err = errors.Join(err, netlink.LinkSetUp(lo),
			os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40009"), 0o600))
		if err != nil {
			t.Error(err)
			return
		}
		for _, at := range []string{"127.0.0.1:40002", "127.0.0.1:40007"} {
			taken, err := net.Listen("tcp", at)
			if err != nil {
				t.Error(err)
				return
			}
			defer taken.Close()
		}
		for _, at := range []string{"127.0.0.1:0", "127.0.0.1:40002"} {
			for range 30 {
				udp, tcp, err := listen(netip.MustParseAddrPort(at))
				if err != nil {
					t.Errorf("listen at %s: %v", at, err)
					return
				}
				if udp.LocalAddr().String() != tcp.Addr().String() {
					t.Errorf("UDP at %v, TCP at %v", udp.LocalAddr(), tcp.Addr())
				}
				udp.Close()
				tcp.Close()
			}
		}
	})
}

// A panic fails one question. The server continues, and its health check reports the panic.
func TestPanicFailsQuestion(t *testing.T) {
	t.Parallel()
	g := guard.Logging(zap.NewNop())
	s := NewServer(nil, nil, g, zap.NewNop()) // a nil zone panics
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{PacketConn: conn, Handler: s}
	over := guard.Spawn(srv.ActivateAndServe)
	for range 2 {
		answer, err := dns.Exchange(new(dns.Msg).SetQuestion("a.b.", dns.TypeA), conn.LocalAddr().String())
		if err != nil || answer.Rcode != dns.RcodeServerFailure || g.Check() == nil ||
			!strings.HasPrefix(g.Check().Error(), "dns: panic: ") {
			t.Errorf("answer %v, error %v, health %v", answer, err, g.Check())
		}
	}
	conn.Close()
	<-over
}

// upstream starts a resolver that answers with f. asked counts the questions without probes.
func upstream(t testing.TB, f func(q dns.Question, m *dns.Msg)) (at netip.AddrPort, asked *atomic.Int32) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked = new(atomic.Int32)
	srv := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, ask *dns.Msg) {
		if ask.Question[0].Name != probeName {
			asked.Add(1)
		}
		m := new(dns.Msg).SetReply(ask)
		f(ask.Question[0], m)
		w.WriteMsg(m)
	})}
	go srv.ActivateAndServe()
	t.Cleanup(func() { conn.Close() })
	return netip.MustParseAddrPort(conn.LocalAddr().String()), asked
}

func record(text string) dns.RR {
	r, err := dns.NewRR(text)
	if err != nil {
		panic(err)
	}
	return r
}

// TestGoResolver queries the server with the resolver of Go, as programs in pods do.
func TestGoResolver(t *testing.T) {
	t.Parallel()
	up, _ := upstream(t, func(q dns.Question, m *dns.Msg) {
		if q.Qtype == dns.TypeA {
			m.Answer = append(m.Answer, record(q.Name+" 60 IN A 192.0.2.80"))
		}
	})
	at := start(t, zone(services()), up)
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}}
	for name, want := range map[string]string{
		"web.default.svc.cluster.local.": "10.96.0.5 fd96::5", "set.default.svc.cluster.local.": "10.88.0.2 10.88.0.3",
		"outside.default.svc.cluster.local.": "192.0.2.80", "alias.default.svc.cluster.local.": "10.96.0.5 fd96::5",
		"www.example.com.": "192.0.2.80",
	} {
		got, err := r.LookupHost(t.Context(), name)
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v; want %s", name, got, err, want)
		}
	}
	if _, err := r.LookupHost(t.Context(), "absent.default.svc.cluster.local."); err == nil ||
		!strings.Contains(err.Error(), "no such host") {
		t.Errorf("lookup of a name that does not exist: %v", err)
	}
	if _, srv, err := r.LookupSRV(t.Context(), "http", "tcp", "set.default.svc.cluster.local."); err != nil ||
		len(srv) != 2 || srv[0].Port != 8080 {
		t.Errorf("SRV: %v, %v", srv, err)
	}
	if names, err := r.LookupAddr(t.Context(), "10.96.0.5"); err != nil || !slices.Equal(names,
		[]string{"web.default.svc.cluster.local."}) {
		t.Errorf("PTR: %v, %v", names, err)
	}
}

func ask(t testing.TB, at, network, name string, typ uint16) *dns.Msg {
	t.Helper()
	client := &dns.Client{Net: network, Timeout: 10 * time.Second}
	m, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, typ), at)
	if err != nil {
		t.Errorf("%s %s: %v", network, name, err)
		return new(dns.Msg)
	}
	return m
}

func TestNegativeAnswersHaveTTL(t *testing.T) {
	t.Parallel()
	at := start(t, zone(services()))
	for name, code := range map[string]int{"absent.default.svc.cluster.local.": dns.RcodeNameError,
		"set.default.svc.cluster.local.": dns.RcodeSuccess} {
		m := ask(t, at, "udp", name, dns.TypeAAAA)
		if m.Rcode != code || len(m.Answer) > 0 || len(m.Ns) != 1 || m.Ns[0].Header().Rrtype != dns.TypeSOA ||
			m.Ns[0].Header().Ttl != ttl || !m.Authoritative {
			t.Errorf("%s: %v", name, m)
		}
	}
	if m := ask(t, at, "udp", "circular.default.svc.cluster.local.", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("ExternalName Service that names itself: %v", m)
	}
}

// TestLargeAnswersNeedTCP queries a name whose answer is too large for one datagram.
func TestLargeAnswersNeedTCP(t *testing.T) {
	t.Parallel()
	c := services()
	slice := c[key("set")].eps[0]
	slice.Endpoints = nil
	for i := range 200 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.88.1.%d", i)}})
	}
	at := start(t, zone(c))
	if m := ask(t, at, "udp", "set.default.svc.cluster.local.", dns.TypeA); !m.Truncated || len(m.Answer) == 0 {
		t.Errorf("over UDP: %d records, truncated=%t", len(m.Answer), m.Truncated)
	}
	if m := ask(t, at, "tcp", "set.default.svc.cluster.local.", dns.TypeA); m.Truncated || len(m.Answer) != 200 {
		t.Errorf("over TCP: %d records", len(m.Answer))
	}
}

func TestOtherNamesAreCached(t *testing.T) {
	t.Parallel()
	up, asked := upstream(t, func(q dns.Question, m *dns.Msg) {
		switch q.Name {
		case "there.example.":
			m.Answer = append(m.Answer, record(q.Name+" 60 IN A 192.0.2.80"))
		case "at-once.example.":
			m.Answer = append(m.Answer, record(q.Name+" 0 IN A 192.0.2.80"))
		default:
			m.Rcode = dns.RcodeNameError
			m.Ns = append(m.Ns, record("example. 60 IN SOA ns.example. host.example. 1 2 3 4 30"))
		}
	})
	at := start(t, zone(services()), up)
	for _, c := range []struct {
		name  string
		code  int
		asked int32
	}{{"there.example.", dns.RcodeSuccess, 1}, {"absent.example.", dns.RcodeNameError, 1},
		{"at-once.example.", dns.RcodeSuccess, 3}} {
		before := asked.Load()
		for range 3 {
			if m := ask(t, at, "udp", c.name, dns.TypeA); m.Rcode != c.code || m.Question[0].Name != c.name {
				t.Errorf("%s: %v", c.name, m)
			}
		}
		if n := asked.Load() - before; n != c.asked {
			t.Errorf("%s: the resolver was asked %d times, want %d", c.name, n, c.asked)
		}
	}
}

// TestOfflineFailsAtOnce checks no resolver, one that refuses datagrams, and one that never answers.
func TestOfflineFailsAtOnce(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	refused, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := netip.MustParseAddrPort(refused.LocalAddr().String())
	refused.Close()
	for what, resolvers := range map[string][]netip.AddrPort{
		"none": nil, "refused": {gone}, "silent": {netip.MustParseAddrPort(silent.LocalAddr().String())},
	} {
		at := start(t, zone(services()), resolvers...)
		if what == "silent" { // the first question waits
			ask(t, at, "udp", "first.example.", dns.TypeA)
		}
		for i := range 20 {
			if m := ask(t, at, "udp", fmt.Sprintf("n%d.example.", i), dns.TypeA); m.Rcode != dns.RcodeServerFailure {
				t.Errorf("%s: %v", what, m)
			}
		}
	}
}

func TestSecondResolverIsTried(t *testing.T) {
	t.Parallel()
	broken, _ := upstream(t, func(_ dns.Question, m *dns.Msg) { m.Rcode = dns.RcodeServerFailure })
	good, _ := upstream(t, func(q dns.Question, m *dns.Msg) {
		m.Answer = append(m.Answer,
			record(q.Name+" 60 IN A 192.0.2.80"))
	})
	at := start(t, zone(services()), broken, good)
	if m := ask(t, at, "udp", "there.example.", dns.TypeA); len(m.Answer) != 1 {
		t.Error("no answer from the second resolver: ", m)
	}
}

func TestResolversOfTheNode(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	now := time.Unix(0, 0)
	read := Resolvers(file, func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.96.0.10")} },
		func(string) (time.Time, error) { return now, nil })
	write := func(text string) {
		now = now.Add(time.Second)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("nameserver 192.0.2.53\nnameserver 10.96.0.10\nnameserver fe80::1%eth0\n")
	if got := fmt.Sprint(read()); got != "[192.0.2.53:53 [fe80::1%eth0]:53]" {
		t.Error("resolvers: ", got)
	}
	write("# offline\n")
	if got := read(); len(got) > 0 {
		t.Error("resolvers of an empty file: ", got)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newCache(clock.RealClock{})
	for i := range maxCached + 100 {
		m := new(dns.Msg).SetQuestion(fmt.Sprintf("n%d.", i), dns.TypeA)
		m.Answer = append(m.Answer, record(fmt.Sprintf("n%d. 60 IN A 192.0.2.1", i)))
		c.put(keyOf(m.Question[0], false), m)
	}
	if len(c.answers) > maxCached {
		t.Errorf("the cache has %d answers, want at most %d", len(c.answers), maxCached)
	}
}
