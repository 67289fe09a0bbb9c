package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
)

// maxRequestID is the length up to which a client's X-Request-ID is kept.
const maxRequestID = 128

// forwarded are the headers by which a proxy says what it received. Those of a client are removed.
var forwarded = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
	"X-Forwarded-Scheme", "X-Scheme", "X-Real-Ip", "X-Original-Forwarded-For", "Forwarded"}

// front is what all requests of a server have in common.
type front struct {
	Scheme string // http or https
	Port   string // where it listens
}

// rewrite sets the request to the endpoint: that of the client, with headers that identify the client.
func (h *Handler) rewrite(p *httputil.ProxyRequest) {
	job := jobOf(p.In.Context())
	p.Out.URL.RawQuery = p.In.URL.RawQuery // also if it is not valid: the endpoint decides
	p.Out.URL.Scheme, p.Out.URL.Host = "http", "endpoint"
	in, out := p.In.Header, p.Out.Header
	for _, name := range forwarded {
		out.Del(name)
	}
	client, trusted := h.client(p.In)
	proto, host, port, hops := h.front.Scheme, p.In.Host, h.front.Port, client
	if trusted {
		proto, host, port = first(in, "X-Forwarded-Proto", proto), first(in, "X-Forwarded-Host", host),
			first(in, "X-Forwarded-Port", port)
		if earlier := in.Values("X-Forwarded-For"); len(earlier) > 0 {
			hops = strings.Join(earlier, ", ") + ", " + client
			client = h.realClient(earlier, client)
		}
	}
	out["X-Forwarded-For"] = []string{hops}
	out["X-Forwarded-Host"] = []string{host}
	out["X-Forwarded-Proto"] = []string{proto}
	out["X-Forwarded-Scheme"] = []string{proto}
	out["X-Forwarded-Port"] = []string{port}
	out["X-Real-Ip"] = []string{client}
	out["X-Request-Id"] = []string{job.id}
}

func first(h http.Header, name, otherwise string) string {
	if v := h.Get(name); v != "" {
		return v
	}
	return otherwise
}

// client returns the address at the other end of the connection, and whether its X-Forwarded headers count.
func (h *Handler) client(r *http.Request) (address string, trusted bool) {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr, false
	}
	if len(h.Trusted) == 0 {
		return address, false
	}
	return address, h.trusts(address)
}

func (h *Handler) trusts(address string) bool {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	for _, p := range h.Trusted {
		if p.Contains(ip.Unmap().WithZone("")) {
			return true
		}
	}
	return false
}

// realClient returns the last hop that is not a trusted proxy.
func (h *Handler) realClient(headers []string, last string) string {
	hops := strings.Split(strings.Join(headers, ","), ",")
	for i := len(hops) - 1; i >= 0 && h.trusts(last); i-- {
		last = strings.TrimSpace(hops[i])
	}
	return last
}

// requestID returns the client's, or a new one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); id != "" && len(id) <= maxRequestID {
		return id
	}
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// secureURL returns the address of a request at the HTTPS server; the port is omitted if it is 443.
func secureURL(r *http.Request, host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "443" {
		host += ":" + port
	}
	return "https://" + host + r.URL.RequestURI()
}
