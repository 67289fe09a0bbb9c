package route

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Listener is a listener of a Gateway for HTTP: the rules for the hosts that it serves.
type Listener[T any] struct {
	Host  string             // in lower case; "*." and a name: every name below it; empty: every host
	Certs []*tls.Certificate // of HTTPS
	Rules []HTTPRule[T]      // in the order of SortRules
}

// Listeners are the listeners of one port of a Gateway, in the order of SortListeners.
type Listeners[T any] []*Listener[T]

// SortListeners puts the most specific host first.
func SortListeners[T any](l Listeners[T]) {
	slices.SortStableFunc(l, func(a, b *Listener[T]) int { return compareHosts(a.Host, b.Host) })
}

// Find returns the listener with the most specific host that matches a host, as Host returns it; nil: there is none.
func (l Listeners[T]) Find(host string) *Listener[T] {
	for _, one := range l {
		if MatchesHost(one.Host, host) {
			return one
		}
	}
	return nil
}

// MatchesHost reports whether a host is the pattern, or below it if it begins with an asterisk.
func MatchesHost(pattern, host string) bool {
	if rest, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(host) > len(rest) && strings.HasSuffix(host, rest)
	}
	return pattern == "" || pattern == host
}

// IntersectHosts returns the more specific one of two patterns; ok is false if no host matches both.
func IntersectHosts(a, b string) (host string, ok bool) {
	switch {
	case a == "":
		return b, true
	case b == "" || a == b:
		return a, true
	case strings.HasPrefix(a, "*") && strings.HasSuffix(b, a[1:]):
		return b, true
	case strings.HasPrefix(b, "*") && strings.HasSuffix(a, b[1:]):
		return a, true
	}
	return "", false
}

// compareHosts puts names before names with an asterisk, longer ones before shorter ones, and every host last.
func compareHosts(a, b string) int {
	rank := func(host string) int {
		switch {
		case host == "":
			return 2
		case strings.HasPrefix(host, "*"):
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(b), len(a)))
}

// HTTPRule maps the requests that meet all of its conditions to a value.
type HTTPRule[T any] struct {
	Host    string         // as that of a Listener
	Path    string         // absolute; empty: every path
	Exact   bool           // Path itself; false: also the paths below it, by elements
	Pattern *regexp.Regexp // instead of Path; nil: none
	Method  string         // empty: every method
	Headers []Field        // names in canonical form
	Query   []Field
	To      T
}

// Field is a condition for a header or a parameter of the query.
type Field struct {
	Name, Value string
	Pattern     *regexp.Regexp // instead of Value; nil: none
}

func (f *Field) matches(values []string) bool {
	if len(values) == 0 {
		return false
	}
	if f.Pattern != nil {
		return f.Pattern.MatchString(values[0])
	}
	return f.Value == values[0]
}

// SortRules puts the rules in the order of precedence that the Gateway API demands: the most specific host, an exact
// path, the longest path, a method, the most headers, the most parameters. Of equal ones, the first stays first.
func SortRules[T any](rules []HTTPRule[T]) {
	kind := func(r *HTTPRule[T]) int { // of the path
		switch {
		case r.Exact:
			return 0
		case r.Pattern != nil:
			return 1
		}
		return 2
	}
	size := func(r *HTTPRule[T]) int { return len(strings.TrimRight(r.Path, "/")) }
	slices.SortStableFunc(rules, func(a, b HTTPRule[T]) int {
		return cmp.Or(compareHosts(a.Host, b.Host), cmp.Compare(kind(&a), kind(&b)), cmp.Compare(size(&b), size(&a)),
			cmp.Compare(len(b.Method), len(a.Method)), cmp.Compare(len(b.Headers), len(a.Headers)),
			cmp.Compare(len(b.Query), len(a.Query)))
	})
}

// Find returns the value of the first rule that a request meets; host and path are as Host and Path return them.
func (l *Listener[T]) Find(r *http.Request, host, path string) (to T, ok bool) {
	var query url.Values
	for i := range l.Rules {
		rule := &l.Rules[i]
		if !MatchesHost(rule.Host, host) || !rule.matchesPath(path) || rule.Method != "" && rule.Method != r.Method ||
			slices.ContainsFunc(rule.Headers, func(f Field) bool { return !f.matches(r.Header[f.Name]) }) {
			continue
		}
		if len(rule.Query) > 0 && query == nil {
			query = r.URL.Query()
		}
		if slices.ContainsFunc(rule.Query, func(f Field) bool { return !f.matches(query[f.Name]) }) {
			continue
		}
		return rule.To, true
	}
	return to, false
}

func (r *HTTPRule[T]) matchesPath(path string) bool {
	switch {
	case r.Pattern != nil:
		return r.Pattern.MatchString(path)
	case r.Exact:
		return path == r.Path
	}
	rest, ok := strings.CutPrefix(path, strings.TrimRight(r.Path, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
