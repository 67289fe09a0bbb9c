package route

import (
	"cmp"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Filters are what a Gateway's route changes in requests and responses.
type Filters struct {
	Request, Response []HeaderChange
	Path              *PathChange
	Redirect          *Redirect // instead of an endpoint; nil: none
}

// HeaderChange changes a header: it is removed, set, or gets one more value.
type HeaderChange struct {
	Name  string
	Value string
	Op    HeaderOp
}

// HeaderOp is the kind of a HeaderChange.
type HeaderOp int

// The kinds of a HeaderChange.
const (
	SetHeader HeaderOp = iota
	AddHeader
	RemoveHeader
)

// ChangeHeader applies changes in their order.
func ChangeHeader(h http.Header, changes []HeaderChange) {
	for _, c := range changes {
		switch c.Op {
		case SetHeader:
			h.Set(c.Name, c.Value)
		case AddHeader:
			h.Add(c.Name, c.Value)
		case RemoveHeader:
			h.Del(c.Name)
		}
	}
}

// PathChange replaces a path, or the part of it that the rule's path matches.
type PathChange struct {
	Prefix string // the part; empty: the whole path
	To     string
}

// Apply returns the new path.
func (c *PathChange) Apply(path string) string {
	next := c.To
	if c.Prefix != "" {
		next = strings.TrimRight(next, "/") + strings.TrimPrefix(path, strings.TrimRight(c.Prefix, "/"))
	}
	if !strings.HasPrefix(next, "/") {
		next = "/" + next
	}
	return next
}

// Redirect says where clients are redirected. Empty fields are those of the request.
type Redirect struct {
	Scheme, Host string
	Port         int32
	Path         *PathChange
	Code         int // 0: 302
}

// Location returns the URL for a request that came to a server with the scheme and the port, and the status code.
func (d *Redirect) Location(r *http.Request, path, scheme, port string) (location string, code int) {
	switch {
	case d.Port != 0:
		port = strconv.Itoa(int(d.Port))
	case d.Scheme != "": // the port of the other scheme
		port = usualPorts[d.Scheme]
	}
	scheme = cmp.Or(d.Scheme, scheme)
	host := cmp.Or(d.Host, Host(r.Host))
	if port != "" && port != usualPorts[scheme] {
		host = net.JoinHostPort(host, port)
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	url := *r.URL
	url.Scheme, url.Host = scheme, host
	if d.Path != nil {
		url.Path, url.RawPath = d.Path.Apply(path), ""
	}
	return url.String(), cmp.Or(d.Code, http.StatusFound)
}

var usualPorts = map[string]string{"http": "80", "https": "443"}
