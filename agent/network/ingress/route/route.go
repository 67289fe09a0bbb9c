// Package route finds the rule for an HTTP request by its host and path.
//
//   - annotation.go, values.go: read what annotations of an Ingress set
//   - pattern.go: paths that are regular expressions
//   - canary.go, cors.go: decide about a request
//   - certs.go, users.go: read certificates and passwords from Secrets
package route

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Hosts maps host names to values. A key is a host name in lower case, or "*." and the rest of one, which matches
// every name with one label instead of the asterisk.
type Hosts[T any] map[string]T

// Find returns the value of a host as Host returns it: that of the name itself, otherwise that of its wildcard.
func (h Hosts[T]) Find(host string) (value T, ok bool) {
	if value, ok = h[host]; ok {
		return value, true
	}
	if dot := strings.IndexByte(host, '.'); dot > 0 {
		value, ok = h["*"+host[dot:]]
	}
	return value, ok
}

// Rule maps requests to a value.
type Rule[T any] struct {
	Host string // a key of Hosts; empty: every host without rules of its own
	// Path is absolute. Empty: every path of the host without another rule, and for an empty Host every request
	// without another rule.
	Path  string
	Exact bool // Path itself; false: also the paths below it, by elements
	// Pattern is what Path means on a host with regular expressions; nil: Path itself. On such a host, all rules with a
	// path have one.
	Pattern *regexp.Regexp
	To      T
}

// Table holds rules. It does not change and is safe for concurrent use; the zero value has no rules.
type Table[T any] struct {
	hosts    Hosts[*paths[T]]
	any      *paths[T] // of every host without rules of its own; nil: none
	fallback *T        // nil: none
}

// paths are the rules of a host.
type paths[T any] struct {
	exact    map[string]T
	prefixes map[string]T // without a slash at the end
	depth    int          // the maximum number of slashes in a key of prefixes
	patterns []pattern[T] // the longest path first
	fallback *T           // nil: none
}

// pattern is a rule whose path is a regular expression.
type pattern[T any] struct {
	path string
	re   *regexp.Regexp
	to   T
}

// New returns the table of the rules. Of several rules for the same host and path the first one applies; repeated
// contains the indexes of the others, except those of rules without a path.
func New[T any](rules []Rule[T]) (table *Table[T], repeated []int) {
	table = &Table[T]{hosts: Hosts[*paths[T]]{}}
	for i := range rules {
		if !table.add(&rules[i]) {
			repeated = append(repeated, i)
		}
	}
	return table, repeated
}

func (t *Table[T]) add(r *Rule[T]) bool {
	if r.Host == "" && r.Path == "" {
		if t.fallback == nil {
			t.fallback = &r.To
		}
		return true
	}
	p := t.paths(r.Host)
	switch {
	case r.Path == "":
		if p.fallback == nil {
			p.fallback = &r.To
		}
		return true
	case r.Pattern != nil:
		return p.addPattern(r)
	case r.Exact:
		return insert(p.exact, r.Path, r.To)
	}
	prefix := strings.TrimRight(r.Path, "/")
	p.depth = max(p.depth, strings.Count(prefix, "/"))
	return insert(p.prefixes, prefix, r.To)
}

func (t *Table[T]) paths(host string) *paths[T] {
	p := t.any
	if host != "" {
		p = t.hosts[host]
	}
	if p == nil {
		p = &paths[T]{exact: map[string]T{}, prefixes: map[string]T{}}
		if host == "" {
			t.any = p
		} else {
			t.hosts[host] = p
		}
	}
	return p
}

func (p *paths[T]) addPattern(r *Rule[T]) bool {
	at, _ := slices.BinarySearchFunc(p.patterns, r.Path, func(one pattern[T], path string) int {
		return cmp.Or(cmp.Compare(len(path), len(one.path)), cmp.Compare(path, one.path))
	})
	for i := at; i < len(p.patterns) && p.patterns[i].path == r.Path; i++ {
		if p.patterns[i].re.String() == r.Pattern.String() {
			return false
		}
		at++
	}
	p.patterns = slices.Insert(p.patterns, at, pattern[T]{r.Path, r.Pattern, r.To})
	return true
}

func insert[T any](m map[string]T, path string, to T) bool {
	if _, taken := m[path]; taken {
		return false
	}
	m[path] = to
	return true
}

// Find returns the value for a request; host and path are as Host and Path return them. The most specific host takes
// precedence: the name, its wildcard, rules without a host. Within the host, an exact path precedes prefixes, and a
// longer prefix a shorter one. If none matches, the host's rule without a path applies, and then the rule without host
// and path.
func (t *Table[T]) Find(host, path string) (to T, ok bool) {
	p, found := t.hosts.Find(host)
	if !found {
		p = t.any
	}
	if p != nil {
		if to, ok = p.find(path); ok {
			return to, true
		}
	}
	if t.fallback != nil {
		return *t.fallback, true
	}
	return to, false
}

func (p *paths[T]) find(path string) (to T, ok bool) {
	for i := range p.patterns {
		if p.patterns[i].re.MatchString(path) {
			return p.patterns[i].to, true
		}
	}
	if to, ok = p.exact[path]; ok {
		return to, true
	}
	for path = elements(path, p.depth); ; path = path[:strings.LastIndexByte(path, '/')] {
		if to, ok = p.prefixes[path]; ok {
			return to, true
		}
		if path == "" {
			break
		}
	}
	if p.fallback != nil {
		return *p.fallback, true
	}
	return to, false
}

// elements returns the first n elements of an absolute path, so that a path with many does not cost a lookup for each.
func elements(path string, n int) string {
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if n--; n < 0 {
			return path[:i]
		}
	}
	return strings.TrimSuffix(path, "/")
}
