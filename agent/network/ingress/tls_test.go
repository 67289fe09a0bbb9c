package ingress

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// TestCertificatesOfHosts checks that a client receives the certificate of the host in SNI. After a renewal of its
// Secret, new connections have the new certificate, and open connections continue.
func TestCertificatesOfHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.node("n", "192.0.2.7")
	c.start(Config{HTTPS: "127.0.0.1:0", Node: "n", MaxBody: "1Mi", DefaultCertificate: "default/fallback"})
	c.pod("10.0.0.1:8080", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })
	ends := time.Now().Add(time.Hour)
	c.create(service("web"), slice("web", []string{"10.0.0.1"}), pairOf(t, "fallback", ends, "fallback.com"))
	for name, hosts := range map[string][]string{"a": {"a.com", "www.a.com"}, "b": {"b.com"}, "wild": {"*.b.com"},
		"none": {"none.com"}} {
		i := simple(name, hosts[0], "web")
		for _, host := range hosts[1:] {
			i.Spec.Rules = append(i.Spec.Rules, simple(name, host, "web").Spec.Rules...)
		}
		if name != "none" {
			i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: hosts, SecretName: name}}
			c.create(pairOf(t, name, ends, hosts...))
		}
		c.create(i)
	}
	until(t, "a status of a", func() bool { return len(c.ingress("a").Status.LoadBalancer.Ingress) > 0 })
	port := c.ingress("a").Status.LoadBalancer.Ingress[0].Ports[0].Port
	for host, names := range map[string][]string{
		"a.com": {"a.com", "www.a.com"}, "www.a.com": {"a.com", "www.a.com"}, "b.com": {"b.com"}, "x.b.com": {"*.b.com"},
		"none.com": {"fallback.com"}, "y.x.b.com": {"fallback.com"}, "unknown.com": {"fallback.com"},
	} {
		until(t, fmt.Sprintf("%s gets the certificate of %v", host, names),
			func() bool { return slices.Equal(shown(t, port, host).DNSNames, names) })
	}

	for _, versions := range []struct {
		name string
		set  func(*http.Transport)
	}{{"HTTP/1.1", func(tr *http.Transport) { tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{} }},
		{"HTTP/2", func(tr *http.Transport) { tr.ForceAttemptHTTP2 = true }}} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "a.com"}}
		versions.set(transport)
		client := &http.Client{Transport: transport}
		request := func() (reused bool, serial string) {
			ctx := httptrace.WithClientTrace(t.Context(),
				&httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/", port), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "a.com"
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "a.com" {
				t.Errorf("%s: %d %s %v", versions.name, resp.StatusCode, body, err)
			}
			return reused, resp.TLS.PeerCertificates[0].SerialNumber.String()
		}
		_, first := request()
		renewed := pairOf(t, "a", ends, "a.com", "www.a.com")
		edit(c, renewed, func(s *corev1.Secret) { s.Data = renewed.Data })
		until(t, "a new connection has the new certificate",
			func() bool { return shown(t, port, "a.com").SerialNumber.String() != first })
		if reused, serial := request(); !reused || serial != first {
			t.Errorf("%s: open connection: reused %t, certificate %s, want %s", versions.name, reused,
				serial, first)
		}
		client.CloseIdleConnections()
		if reused, serial := request(); reused || serial == first {
			t.Errorf("%s: new connection: reused %t, certificate %s", versions.name, reused, serial)
		}
		client.CloseIdleConnections()
	}
}
