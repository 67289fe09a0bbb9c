package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"k8s.io/utils/clock"

	"monopod/testdata/harness"
)

// TestStubs checks that only the resolvers of the longest matching zone answer a name, even if they fail.
func TestStubs(t *testing.T) {
	t.Parallel()
	answers := func(ip string) netip.AddrPort {
		at, _ := upstream(t, func(q dns.Question, m *dns.Msg) { m.Answer = append(m.Answer, record(q.Name+" 60 IN A "+ip)) })
		return at
	}
	broken, _ := upstream(t, func(_ dns.Question, m *dns.Msg) { m.Rcode = dns.RcodeServerFailure })
	node := answers("192.0.2.1")
	var stubs Stubs
	for _, text := range []string{
		fmt.Sprintf("Corp.example.=%s,%s", broken, answers("192.0.2.2")),
		fmt.Sprintf("lab.corp.example=%s", answers("192.0.2.3")), fmt.Sprintf("down.example=%s", broken),
	} {
		if err := stubs.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	f := NewForwarder(func() []netip.AddrPort { return []netip.AddrPort{node} }, stubs, clock.RealClock{}, nil)
	for name, want := range map[string]string{
		"a.corp.example.": "192.0.2.2", "CORP.example.": "192.0.2.2", "x.y.Lab.corp.example.": "192.0.2.3",
		"xcorp.example.": "192.0.2.1", "example.": "192.0.2.1", ".": "192.0.2.1",
	} {
		m, err := asked(t, f, name, dns.RcodeSuccess)
		if err != nil || len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != want {
			t.Errorf("%s: %v, %v, want %s", name, m, err, want)
		}
	}
	if m, err := asked(t, f, "a.down.example.", dns.RcodeServerFailure); err != nil || m.Rcode != dns.RcodeServerFailure {
		t.Errorf("name in a zone whose resolver fails: %v, error %v", m, err)
	}
}

// asked repeats a question until the answer has the rcode. The first answer of a resolver must arrive within some 40
// ms, which a slow machine may miss.
func asked(t *testing.T, f *Forwarder, name string, rcode int) (m *dns.Msg, err error) {
	t.Helper()
	harness.Eventually(harness.Enough, func() bool {
		m, err = f.Ask(t.Context(), a(name), false)
		return err == nil && m.Rcode == rcode
	})
	return m, err
}

func TestStubsFlag(t *testing.T) {
	t.Parallel()
	s := Stubs{}
	if err := s.Set("a.example=10.0.0.1,[fd00::1]:5353,fd00::2"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s["a.example."]); got != "[10.0.0.1:53 [fd00::1]:5353 [fd00::2]:53]" {
		t.Error("resolvers: ", got)
	}
	for text, want := range map[string]string{
		"a.example": "must be ZONE=ADDRESS", "=10.0.0.1": "zone", "b_c.example=10.0.0.1": "zone",
		"A.example.=10.0.0.1": "repeated",
		"b.example=":          "neither", "b.example=host": "neither", "b.example=10.0.0.1:x": "neither",
	} {
		if err := s.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for i := range maxStubs - 1 {
		if err := s.Set(fmt.Sprintf("z%d.example=10.0.0.1", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Set("more.example=10.0.0.1"); err == nil {
		t.Error("Set accepts more than maxStubs zones")
	}
}
