package route

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
)

func TestIntersectHosts(t *testing.T) {
	for _, row := range []struct {
		a, b, want string
		ok         bool
	}{
		{"", "", "", true},
		{"", "a.example.com", "a.example.com", true},
		{"*.example.com", "a.example.com", "a.example.com", true},
		{"*.example.com", "a.b.example.com", "a.b.example.com", true},
		{"*.example.com", "*.b.example.com", "*.b.example.com", true},
		{"*.example.com", "example.com", "", false},
		{"*.example.com", "a.example.org", "", false},
		{"a.example.com", "b.example.com", "", false},
		{"a.example.com", "a.example.com", "a.example.com", true},
	} {
		for _, pair := range [][2]string{{row.a, row.b}, {row.b, row.a}} {
			if got, ok := IntersectHosts(pair[0], pair[1]); got != row.want || ok != row.ok {
				t.Errorf("IntersectHosts(%q, %q) = %q, %v, want %q, %v", pair[0], pair[1], got, ok, row.want, row.ok)
			}
		}
	}
}

func TestListeners(t *testing.T) {
	var all Listeners[int]
	for _, host := range []string{"", "*.example.com", "a.example.com", "*.b.example.com"} {
		all = append(all, &Listener[int]{Host: host})
	}
	SortListeners(all)
	for host, want := range map[string]string{"a.example.com": "a.example.com", "c.b.example.com": "*.b.example.com",
		"b.example.com": "*.example.com", "example.com": "", "other": ""} {
		if got := all.Find(host); got == nil || got.Host != want {
			t.Errorf("%s: listener %v, want %q", host, got, want)
		}
	}
	if got := all[:3].Find("example.com"); got != nil {
		t.Errorf("listener %q for a host that none has", got.Host)
	}
}

func TestHTTPRules(t *testing.T) {
	number := regexp.MustCompile("^[0-9]+$")
	l := Listener[string]{Rules: []HTTPRule[string]{
		{To: "all"},
		{Path: "/app", To: "prefix"},
		{Path: "/app/", To: "second of the same prefix"},
		{Path: "/app/deep", To: "longer prefix"},
		{Path: "/app", Exact: true, To: "exact"},
		{Path: "/app/deep", Method: "POST", To: "method"},
		{Path: "/h", Headers: []Field{{Name: "X-A", Value: "1"}}, To: "header"},
		{Path: "/h", Headers: []Field{{Name: "X-A", Value: "1"}, {Name: "X-B", Pattern: number}}, To: "two headers"},
		{Path: "/q", Query: []Field{{Name: "a", Value: "1"}}, To: "query"},
		{Host: "one.example.com", Path: "/", To: "host"},
		{Host: "*.example.com", Path: "/app/deep/down", To: "wildcard"},
		{Path: "/re/[a-z]+", Pattern: regexp.MustCompile("^/re/[a-z]+$"), To: "expression"},
	}}
	SortRules(l.Rules)
	for _, row := range []struct {
		host, method, target string
		header               http.Header
		want                 string
	}{
		{"x", "GET", "/", nil, "all"},
		{"x", "GET", "/application", nil, "all"},
		{"x", "GET", "/app", nil, "exact"},
		{"x", "GET", "/app/x", nil, "prefix"},
		{"x", "GET", "/app/deep/x", nil, "longer prefix"},
		{"x", "POST", "/app/deep", nil, "method"},
		{"x", "GET", "/h", http.Header{"X-A": {"1"}}, "header"},
		{"x", "GET", "/h", http.Header{"X-A": {"1"}, "X-B": {"12"}}, "two headers"},
		{"x", "GET", "/h", http.Header{"X-A": {"2"}}, "all"},
		{"x", "GET", "/q?a=1", nil, "query"},
		{"x", "GET", "/q?a=2", nil, "all"},
		{"one.example.com", "GET", "/app", nil, "host"},
		{"two.example.com", "GET", "/app/deep/down", nil, "wildcard"},
		{"two.example.com", "GET", "/app", nil, "exact"},
		{"x", "GET", "/re/abc", nil, "expression"},
		{"x", "GET", "/re/1", nil, "all"},
	} {
		r := httptest.NewRequest(row.method, "http://"+row.host+row.target, nil)
		if row.header != nil {
			r.Header = row.header
		}
		if got, ok := l.Find(r, row.host, r.URL.Path); !ok || got != row.want {
			t.Errorf("%s %s%s: %q, want %q", row.method, row.host, row.target, got, row.want)
		}
	}
}

func TestRedirectLocation(t *testing.T) {
	for _, row := range []struct {
		name         string
		redirect     Redirect
		scheme, port string
		want         string
	}{
		{"nothing", Redirect{}, "http", "80", "http://example.com/a/b?c=d"},
		{"port of the listener", Redirect{}, "http", "8080", "http://example.com:8080/a/b?c=d"},
		{"scheme", Redirect{Scheme: "https"}, "http", "8080", "https://example.com/a/b?c=d"},
		{"host", Redirect{Host: "other.org"}, "https", "443", "https://other.org/a/b?c=d"},
		{"port", Redirect{Port: 8443, Scheme: "https"}, "http", "80", "https://example.com:8443/a/b?c=d"},
		{"usual port", Redirect{Port: 80}, "http", "8080", "http://example.com/a/b?c=d"},
		{"path", Redirect{Path: &PathChange{To: "/new"}}, "http", "80", "http://example.com/new?c=d"},
		{"prefix", Redirect{Path: &PathChange{Prefix: "/a", To: "/x/"}}, "http", "80", "http://example.com/x/b?c=d"},
		{"prefix that vanishes", Redirect{Path: &PathChange{Prefix: "/a", To: "/"}}, "http", "80", "http://example.com/b?c=d"},
		{"two slashes", Redirect{Path: &PathChange{To: "//evil.org/"}}, "http", "80", "http://example.com//evil.org/?c=d"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://example.com/a/b?c=d", nil)
		if got, code := row.redirect.Location(r, "/a/b", row.scheme, row.port); got != row.want || code != http.StatusFound {
			t.Errorf("%s: %d to %s, want %s", row.name, code, got, row.want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "http://[2001:db8::1]:8080/", nil)
	if got, _ := (&Redirect{}).Location(r, "/", "http", "80"); got != "http://[2001:db8::1]/" {
		t.Errorf("IPv6: %s", got)
	}
}

func TestPathChange(t *testing.T) {
	for _, row := range []struct {
		change PathChange
		want   string // for /a/b
	}{
		{PathChange{To: "/new"}, "/new"}, {PathChange{To: "new"}, "/new"}, {PathChange{}, "/"},
		{PathChange{Prefix: "/a", To: "new/"}, "/new/b"}, {PathChange{Prefix: "/a/b/", To: ""}, "/"},
	} {
		if got := row.change.Apply("/a/b"); got != row.want {
			t.Errorf("%+v: %s, want %s", row.change, got, row.want)
		}
	}
}

func TestHeaderChanges(t *testing.T) {
	h := http.Header{"A": {"1"}, "B": {"1"}, "C": {"1"}}
	ChangeHeader(h, []HeaderChange{{Name: "a", Value: "2"}, {Name: "b", Value: "2", Op: AddHeader},
		{Name: "c", Op: RemoveHeader}, {Name: "d", Value: "2", Op: AddHeader}})
	if h.Get("A") != "2" || len(h["B"]) != 2 || h["C"] != nil || h.Get("D") != "2" {
		t.Errorf("headers %v", h)
	}
}
