package route_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"monopod/agent/network/ingress/route"
)

// parse parses rules of the form "host path". A path with the prefix = is exact; - is an empty host or path. The target
// of a rule is its own text.
func parse(text string) []route.Rule[string] {
	var rules []route.Rule[string]
	for _, field := range strings.Split(text, ", ") {
		host, path, _ := strings.Cut(field, " ")
		exact := strings.HasPrefix(path, "=")
		path = strings.TrimPrefix(path, "=")
		if host == "-" {
			host = ""
		}
		if path == "-" {
			path = ""
		}
		rules = append(rules, route.Rule[string]{Host: host, Path: path, Exact: exact, To: field})
	}
	return rules
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rules, host, path, want string }{
		// These are the examples of the Kubernetes documentation.
		{"- /", "any", "/", "- /"},
		{"- /", "any", "/a/b", "- /"},
		{"- =/foo", "any", "/foo", "- =/foo"},
		{"- =/foo", "any", "/bar", ""},
		{"- =/foo", "any", "/foo/", ""},
		{"- =/foo/", "any", "/foo", ""},
		{"- /foo", "any", "/foo", "- /foo"},
		{"- /foo", "any", "/foo/", "- /foo"},
		{"- /foo/", "any", "/foo", "- /foo/"},
		{"- /foo/", "any", "/foo/", "- /foo/"},
		{"- /aaa/bb", "any", "/aaa/bbb", ""},
		{"- /aaa/bbb", "any", "/aaa/bbb", "- /aaa/bbb"},
		{"- /aaa/bbb/", "any", "/aaa/bbb", "- /aaa/bbb/"},
		{"- /aaa/bbb", "any", "/aaa/bbb/", "- /aaa/bbb"},
		{"- /aaa/bbb", "any", "/aaa/bbb/ccc", "- /aaa/bbb"},
		{"- /aaa/bbb", "any", "/aaa/bbbxyz", ""},
		{"- /, - /aaa", "any", "/aaa/ccc", "- /aaa"},
		{"- /, - /aaa", "any", "/ccc", "- /"},
		{"- /, - /aaa, - /aaa/bbb", "any", "/aaa/bbb", "- /aaa/bbb"},
		{"- /aaa", "any", "/ccc", ""},
		{"- /foo, - =/foo", "any", "/foo", "- =/foo"},
		{"- =/foo, - /foo", "any", "/foo/x", "- /foo"},
		{"*.foo.com /", "bar.foo.com", "/", "*.foo.com /"},
		{"*.foo.com /", "baz.bar.foo.com", "/", ""},
		{"*.foo.com /", "foo.com", "/", ""},
		{"*.foo.com /", "*.foo.com", "/", "*.foo.com /"},

		// Find chooses the most specific host first, and then the path.
		{"a.com /, *.com /, - /", "a.com", "/x", "a.com /"},
		{"a.com /, *.com /, - /", "b.com", "/x", "*.com /"},
		{"a.com /, *.com /, - /", "a.b.com", "/x", "- /"},
		{"a.com /, *.com /, - /", "", "/x", "- /"},
		{"a.com /x, *.com /", "a.com", "/y", ""},
		{"a.com /x, - /", "a.com", "/y", ""},
		{"a.com /x, - /y", "b.com", "/y", "- /y"},
		{"*.a.com /, x.a.com /only", "x.a.com", "/", ""},
		{"a.com /", "a.com.", "/", ""},
		{"com /", "com", "/", "com /"},
		{"*.com /", ".com", "/", ""},

		// These rules have no path, or neither host nor path.
		{"a.com /x, a.com -", "a.com", "/y", "a.com -"},
		{"a.com /x, a.com -", "a.com", "/x/y", "a.com /x"},
		{"a.com /x, a.com -", "b.com", "/y", ""},
		{"a.com /x, - -", "a.com", "/y", "- -"},
		{"a.com /x, - -", "b.com", "/x", "- -"},
		{"a.com /x, a.com -, - -", "a.com", "/y", "a.com -"},
		{"- /x, - -", "b.com", "/y", "- -"},
		{"- -", "", "/", "- -"},
		{"a.com -", "a.com", "/", "a.com -"},
		{"*.com -, - -", "a.com", "/", "*.com -"},

		// The longest path wins, regardless of the order.
		{"- /a/b, - /a, - /a/b/c", "h", "/a/b/c/d", "- /a/b/c"},
		{"- /a/b/c, - /a, - /a/b", "h", "/a/b/d", "- /a/b"},
		{"- /a/b, - =/a/b/", "h", "/a/b/", "- =/a/b/"},
		{"- /a, - =/a/b", "h", "/a/b/c", "- /a"},
		{"- /A", "h", "/a", ""},
		{"- /a b", "h", "/a b/c", "- /a b"},
		{"- /a", "h", "/" + strings.Repeat("a/", 3), "- /a"},
		{"- /a", "h", "/a" + strings.Repeat("/", 20000), "- /a"},
		{"- /é", "h", "/é/x", "- /é"},
	} {
		table, repeated := route.New(parse(c.rules))
		if got, ok := table.Find(c.host, c.path); got != c.want || ok != (c.want != "") || len(repeated) > 0 {
			t.Errorf("%s: %s%.40s: %q, %v, want %q; repeated %v", c.rules, c.host, c.path, got, ok, c.want, repeated)
		}
	}
	if _, ok := new(route.Table[string]).Find("a", "/"); ok {
		t.Error("a table without rules found a target")
	}
}

func TestRepeated(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string][]int{
		"a /, a /":                 {1},
		"a /x, a =/x, a /x/":       {2},
		"a /x, b /x, - /x, *.a /x": nil,
		"a =/x, a =/x, a =/x/":     {1},
		"a -, a -, - -, - -":       nil,
	} {
		if _, got := route.New(parse(rules)); !slices.Equal(got, want) {
			t.Errorf("%s: repeated %v, want %v", rules, got, want)
		}
	}
	table, _ := route.New([]route.Rule[int]{{Path: "/", To: 1}, {Path: "/", To: 2}, {To: 3}, {To: 4}})
	if got, _ := table.Find("", "/"); got != 1 {
		t.Errorf("got rule %d, want rule 1", got)
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"": "", "a.com": "a.com", "A.Com:80": "a.com", "a.com.": "a.com", "a.com.:443": "a.com", "10.0.0.1:80": "10.0.0.1",
		"[::1]:80": "::1", "[2001:DB8::1]": "2001:db8::1", ":80": "", "a:b:c": "a:b", "[::1": "::1", ".": "",
	} {
		if got := route.Host(header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	for decoded, want := range map[string]string{
		"/": "/", "/a/b": "/a/b", "/a/": "/a/", "//a": "/a", "/a//b/": "/a/b/", "/a/./b": "/a/b", "/a/../b": "/b",
		"/../../a": "/a",
		"/a/..":    "/", "/a/.": "/a/", "/a/b/..": "/a/", "/.hidden": "/.hidden", "/a/...": "/a/...", "/..a/": "/..a/",
		"///": "/", "/./": "/",
		"": "", "*": "", "a/b": "",
	} {
		if got, ok := route.Path(decoded); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", decoded, got, ok, want)
		}
	}
}

// slow finds a rule by trying all of them.
func slow(rules []route.Rule[string], host, path string) string {
	matches := func(pattern string) bool {
		if rest, wild := strings.CutPrefix(pattern, "*"); wild && pattern != host {
			label, ok := strings.CutSuffix(host, rest)
			return ok && label != "" && !strings.Contains(label, ".")
		}
		return pattern == host
	}
	// The most specific host with a rule comes first.
	chosen, hosts := "", []string{}
	for _, r := range rules {
		if r.Host != "" && matches(r.Host) {
			hosts = append(hosts, r.Host)
		}
	}
	for _, h := range hosts {
		if chosen == "" || h == host {
			chosen = h
		}
	}
	best, score := "", -1
	for _, r := range rules {
		points := -1
		prefix := strings.Split(strings.Trim(r.Path, "/"), "/")
		switch {
		case r.Path == "" && (r.Host == chosen && chosen != ""):
			points = 1
		case r.Path == "" && r.Host == "":
			points = 0
		case r.Host != chosen || r.Path == "":
		case r.Exact && r.Path == path:
			points = 1 << 20
		case !r.Exact && strings.Trim(r.Path, "/") == "":
			points = 2
		case !r.Exact && path != "" && len(strings.Split(path[1:], "/")) >= len(prefix) &&
			slices.Equal(strings.Split(path[1:], "/")[:len(prefix)], prefix):
			points = 2 + len(prefix)
		}
		if points > score {
			best, score = r.To, points
		}
	}
	return best
}

// FuzzFind compares Find with slow, and checks Path.
func FuzzFind(f *testing.F) {
	f.Add("a.com /x, *.com /, - -", "A.com:80", "/x//y/../z")
	f.Add("- =/foo, - /foo/, b.a.com -, *.a.com =/", "b.a.com", "/foo")
	f.Add("*.a.com /a/b/c, - /a", "x.a.com", "/a/b/c/d")
	f.Add("*.a /, - /", ".a", "/./")
	f.Fuzz(func(t *testing.T, text, header, raw string) {
		var rules []route.Rule[string]
		for i, r := range parse(text) {
			cleaned, ok := route.Path(r.Path)
			if r.Path != "" && (!ok || cleaned != r.Path) || r.Host != route.Host(r.Host) ||
				strings.Contains(strings.TrimPrefix(r.Host, "*."), "*") || strings.HasPrefix(r.Host, ".") {
				continue // admission rejects this rule
			}
			if strings.HasPrefix(r.Host, "*") && !strings.HasPrefix(r.Host, "*.") {
				continue
			}
			r.To = fmt.Sprint(i)
			rules = append(rules, r)
		}
		host := route.Host(header)
		got, ok := route.Path(raw)
		if !ok {
			return
		}
		if again, _ := route.Path(got); again != got {
			t.Fatalf("Path(%q) is %q, whose Path is %q", raw, got, again)
		}
		if strings.Contains(got, "//") || got != "/" && path.Clean(got) != strings.TrimSuffix(got, "/") {
			t.Fatalf("Path(%q) is %q, which is not clean", raw, got)
		}
		table, _ := route.New(rules)
		if found, _ := table.Find(host, got); found != slow(rules, host, got) {
			t.Fatalf("%s: %q %q: rule %q, want %q", text, host, got, found, slow(rules, host, got))
		}
	})
}
