package proxy

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"

	"monopod/agent/network/ingress/route"
)

// maxRequestID is the maximum length of a client's X-Request-ID; longer ones are replaced.
const maxRequestID = 128

// forwardedHeaders describe the request that a proxy received. Those of a client are removed.
var forwardedHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
	"X-Forwarded-Scheme", "X-Scheme", "X-Real-Ip", "X-Original-Forwarded-For", "Forwarded"}

// entryPoint is the scheme and port of a server.
type entryPoint struct {
	Scheme string // http or https
	Port   string
}

// rewrite sets the request to the endpoint: the client's request, with headers that identify the client.
func (h *Handler) rewrite(p *httputil.ProxyRequest) {
	state := stateOf(p.In.Context())
	p.Out.URL.RawQuery = p.In.URL.RawQuery // also if it is not valid: the endpoint decides
	p.Out.URL.Scheme, p.Out.URL.Host = "http", "endpoint"
	in, out := p.In.Header, p.Out.Header
	for _, name := range forwardedHeaders {
		out.Del(name)
	}
	_, trusted := h.client(p.In)
	client, hops := h.hops(p.In)
	proto, host, port := h.Scheme, p.In.Host, h.Port
	if trusted {
		proto = cmp.Or(in.Get("X-Forwarded-Proto"), proto)
		host = cmp.Or(in.Get("X-Forwarded-Host"), host)
		port = cmp.Or(in.Get("X-Forwarded-Port"), port)
	}
	out["X-Forwarded-For"] = []string{hops}
	out["X-Forwarded-Host"] = []string{host}
	out["X-Forwarded-Proto"] = []string{proto}
	out["X-Forwarded-Scheme"] = []string{proto}
	out["X-Forwarded-Port"] = []string{port}
	out["X-Real-Ip"] = []string{client}
	out["X-Request-Id"] = []string{state.id}
	to := state.to
	if to.Prefix != "" {
		out["X-Forwarded-Prefix"] = []string{route.Groups(to.Prefix, to.Pattern, state.path)}
	}
	if to.Host != "" {
		p.Out.Host = to.Host
	}
	if to.Rewrite != "" && to.Pattern != nil {
		p.Out.URL.Path, p.Out.URL.RawQuery = route.Rewrite(to.Rewrite, to.Pattern, state.path, p.In.URL.RawQuery)
		p.Out.URL.RawPath = ""
	}
	if to.Filters.Path != nil {
		p.Out.URL.Path, p.Out.URL.RawPath = to.Filters.Path.Apply(state.path), ""
	}
	route.ChangeHeader(out, to.Filters.Request)
}

// hops returns the address of the client, and the addresses from it to the controller, for X-Forwarded-For.
func (h *Handler) hops(r *http.Request) (client, hops string) {
	client, trusted := h.client(r)
	earlier := r.Header.Values("X-Forwarded-For")
	if !trusted || len(earlier) == 0 {
		return client, client
	}
	return h.realClient(earlier, client), strings.Join(earlier, ", ") + ", " + client
}

// client returns the peer's address of the connection, and whether its X-Forwarded headers are trusted.
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

// requestID returns the client's X-Request-ID, or a new one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); id != "" && len(id) <= maxRequestID {
		return id
	}
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// httpsURL returns the URL of a request at the HTTPS server.
func httpsURL(r *http.Request, host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "443" {
		host += ":" + port
	}
	return "https://" + host + r.URL.RequestURI()
}
