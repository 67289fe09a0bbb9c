package route

import (
	"cmp"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// CORS says which pages of other origins may send requests from a browser. The defaults are those of ingress-nginx.
type CORS struct {
	On            bool
	Origins       []*regexp.Regexp // nil: every origin
	Methods       string
	Headers       string
	Expose        string
	NoCredentials bool
	MaxAge        time.Duration
	// Exact is the Gateway API's way: Methods and Headers have no defaults, an asterisk in them also counts for requests
	// with credentials, and other origins get no answer to a preflight from the endpoint.
	Exact bool
}

const (
	corsMethods = "GET, PUT, POST, DELETE, PATCH, OPTIONS"
	corsHeaders = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range," +
		"Authorization"
	corsMaxAge = 1728000 * time.Second
)

var origin = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://(\*\.)?[A-Za-z0-9._-]+(:[0-9]+)?$`)

// setOrigins sets the origins; an asterisk instead of the first label matches one label.
func setOrigins(c *CORS, text string) string {
	list := []*regexp.Regexp{} // not nil: an invalid value allows no origin
	defer func() { c.Origins = list }()
	for one := range strings.SplitSeq(text, ",") {
		one = strings.TrimSpace(one)
		if one == "*" {
			list = nil
			return ""
		}
		if !origin.MatchString(one) {
			list = []*regexp.Regexp{}
			return "* or origins such as https://example.com, separated by commas"
		}
		quoted := strings.Replace(regexp.QuoteMeta(one), `\*\.`, `[a-z0-9-]+\.`, 1)
		list = append(list, regexp.MustCompile("(?i)^"+quoted+"$"))
	}
	return ""
}

// Allows returns the value of Access-Control-Allow-Origin for a request; empty: its origin is not allowed.
func (c *CORS) Allows(r *http.Request) string {
	if !c.On {
		return ""
	}
	from := r.Header.Get("Origin")
	if c.Origins == nil && c.Exact && !c.NoCredentials {
		return from // browsers refuse an asterisk with credentials
	}
	if c.Origins == nil {
		return "*"
	}
	for _, one := range c.Origins {
		if one.MatchString(from) {
			return from
		}
	}
	return ""
}

// Preflight reports whether a browser asks with the request which requests a page may send.
func (c *CORS) Preflight(r *http.Request) bool {
	return c.On && r.Method == http.MethodOptions &&
		(!c.Exact || r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "")
}

// Set sets the headers of a response to a request, for an origin that Allows returns.
func (c *CORS) Set(h http.Header, r *http.Request, allowed string, preflight bool) {
	h.Set("Access-Control-Allow-Origin", allowed)
	if allowed != "*" {
		h.Add("Vary", "Origin")
	}
	if c.NoCredentials {
		h.Del("Access-Control-Allow-Credentials")
	} else {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if c.Exact {
		c.setAllowed(h, r)
	} else {
		h.Set("Access-Control-Allow-Methods", cmp.Or(c.Methods, corsMethods))
		h.Set("Access-Control-Allow-Headers", cmp.Or(c.Headers, corsHeaders))
	}
	if c.Expose != "" {
		h.Set("Access-Control-Expose-Headers", c.Expose)
	}
	if preflight {
		h.Set("Access-Control-Max-Age", strconv.Itoa(int(min(cmp.Or(c.MaxAge, corsMaxAge), corsMaxAge).Seconds())))
	}
}

// setAllowed sets the allowed methods and headers. Instead of an asterisk, which browsers refuse with credentials, they
// are those that the request names.
func (c *CORS) setAllowed(h http.Header, r *http.Request) {
	for _, one := range []struct{ name, value, requested string }{
		{"Access-Control-Allow-Methods", c.Methods, "Access-Control-Request-Method"},
		{"Access-Control-Allow-Headers", c.Headers, "Access-Control-Request-Headers"},
	} {
		if one.value == "*" && !c.NoCredentials {
			one.value = r.Header.Get(one.requested)
		}
		if one.value != "" {
			h.Set(one.name, one.value)
		}
	}
}
