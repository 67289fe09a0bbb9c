package proxy

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"monopod/agent/network/ingress/route"
)

// Canary is the backend that gets some of the requests of a Destination.
type Canary struct {
	route.Canary
	To *Destination
}

// Split distributes the requests of a Gateway's rule over destinations by weight.
type Split struct {
	Choices []Choice // not empty
	Total   int      // sum of the weights
}

// Choice gets Weight of Total requests.
type Choice struct {
	To     *Destination
	Weight int
}

// choose returns the destination of a request; random returns a number below n.
func (s *Split) choose(random func(n int) int) *Destination {
	if len(s.Choices) == 1 {
		return s.Choices[0].To
	}
	n := random(s.Total)
	for _, c := range s.Choices {
		if n -= c.Weight; n < 0 {
			return c.To
		}
	}
	return s.Choices[0].To
}

// admit answers a request that needs no endpoint or must not reach one, and reports whether it did.
func (h *Handler) admit(w *recorder, r *http.Request, to *Destination, path string) (answered bool) {
	if to.Closed {
		refuse(w, http.StatusServiceUnavailable, "an annotation of the Ingress that restricts access is invalid")
		return true
	}
	if !h.allows(to, r) {
		refuse(w, http.StatusForbidden, "the address of the client is not allowed")
		return true
	}
	allowed, preflight := to.CORS.Allows(r), to.CORS.Preflight(r)
	if allowed != "" && !preflight {
		w.before = append(w.before, func(header http.Header) { to.CORS.Set(header, r, allowed, false) })
	}
	if preflight && (allowed != "" || to.CORS.Exact) {
		if allowed != "" {
			to.CORS.Set(w.Header(), r, allowed, true)
		}
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	if location, code := h.moved(to, r, path); location != "" {
		w.Header().Set("Location", location)
		w.WriteHeader(code)
		return true
	}
	if to.Broken != "" {
		refuse(w, http.StatusInternalServerError, "the route of the Gateway has no valid backend for this request")
		return true
	}
	if !to.Auth.On() {
		return false
	}
	if to.Users == nil {
		refuse(w, http.StatusServiceUnavailable, "the Secret with the users of the Ingress cannot be read")
		return true
	}
	if name, password, ok := r.BasicAuth(); ok && to.Users.Check(name, password) {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="`+cmp.Or(to.Auth.Realm, "Authentication Required")+`"`)
	refuse(w, http.StatusUnauthorized, "the name or the password is missing or wrong")
	return true
}

// allows reports whether the client's address is allowed. One that is not known matches no range.
func (h *Handler) allows(to *Destination, r *http.Request) bool {
	if len(to.Allow) == 0 && len(to.Deny) == 0 {
		return true
	}
	client, _ := h.hops(r)
	ip, err := netip.ParseAddr(client)
	if err != nil {
		return false
	}
	ip = ip.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(ip) }
	return !slices.ContainsFunc(to.Deny, in) && (len(to.Allow) == 0 || slices.ContainsFunc(to.Allow, in))
}

// moved returns where a request is redirected; empty: nowhere.
func (h *Handler) moved(to *Destination, r *http.Request, path string) (location string, code int) {
	scheme := h.Scheme
	if _, trusted := h.client(r); trusted {
		scheme = cmp.Or(r.Header.Get("X-Forwarded-Proto"), scheme)
	}
	switch m := &to.Moved; {
	case to.Filters.Redirect != nil:
		return to.Filters.Redirect.Location(r, path, scheme, h.Port)
	case m.Temporary != "":
		return route.Expand(m.Temporary, scheme, r), cmp.Or(m.TemporaryCode, http.StatusFound)
	case m.Permanent != "":
		return route.Expand(m.Permanent, scheme, r), cmp.Or(m.PermanentCode, http.StatusMovedPermanently)
	case to.AppRoot != "" && path == "/":
		return to.AppRoot, http.StatusFound
	}
	return "", 0
}

// choose returns the destination or its canary. A client that a cookie keeps at an endpoint stays there.
func choose(to *Destination, r *http.Request) *Destination {
	if to.Canary == nil {
		return to
	}
	if id := to.cookie(r); id != "" {
		if to.Backend.has(id) {
			return to
		}
		if to.Canary.To.Backend.has(id) {
			return to.Canary.To
		}
	}
	if to.Canary.Chosen(r, rand.IntN) {
		return to.Canary.To
	}
	return to
}

// cookie returns the endpoint's identifier that the client has; empty: none.
func (d *Destination) cookie(r *http.Request) string {
	if !d.Sticky.On {
		return ""
	}
	c, err := r.Cookie(d.cookieName())
	if err != nil {
		return ""
	}
	return c.Value
}

func (d *Destination) cookieName() string { return cmp.Or(d.Sticky.Name, "INGRESSCOOKIE") }

// stick sets the cookie that keeps a client at an endpoint.
func (d *Destination) stick(header http.Header, id string, secure bool) {
	s := &d.Sticky
	c := &http.Cookie{
		Name: d.cookieName(), Value: id, Path: cmp.Or(s.Path, d.Path, "/"), MaxAge: int(s.MaxAge.Seconds()),
		HttpOnly: true, SameSite: s.SameSite, Secure: secure || s.Secure,
	}
	if s.Expire > 0 {
		c.Expires = time.Now().Add(s.Expire)
	}
	header.Add("Set-Cookie", c.String())
}

// notFound answers a request that no rule matches, for people in a browser with a page.
func notFound(w http.ResponseWriter, r *http.Request, gateway bool) {
	text := "no Ingress has a rule for this host and path"
	if gateway {
		text = "no route of the Gateway matches this request"
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		refuse(w, http.StatusNotFound, text)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte("<!DOCTYPE html><title>404 Not Found</title><h1>404 Not Found</h1><p>N" + text[1:] + ".</p>\n"))
}
