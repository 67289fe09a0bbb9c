package route_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/ingress/route"
)

// parseAnnotations parses lines of name=value with the prefix of ingress-nginx; a name with a slash is complete.
func parseAnnotations(lines ...string) (route.Options, []string) {
	annotations := map[string]string{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		if !strings.Contains(name, "/") {
			name = route.NginxPrefix + name
		}
		annotations[name] = value
	}
	return route.ParseAnnotations(annotations, route.Options{Redirect: true})
}

// An Ingress with an annotation that restricts access is not served without it.
func TestClosed(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct{ closed, event bool }{
		"whitelist-source-range=10.0.0.0/8, ::1": {}, "whitelist-source-range=": {true, true},
		"whitelist-source-range=10.0.0.0/33": {true, true}, "allowlist-source-range=all": {true, true},
		"denylist-source-range=1.2.3.4": {}, "denylist-source-range=1.2.3": {true, true},
		"auth-type=basic": {true, true}, "auth-type=digest": {true, true}, "auth-secret=users": {},
		"auth-secret=other/users": {true, true}, "auth-secret-type=x": {true, true}, "auth-secret-type=auth-map": {},
		"auth-url=http://x": {true, true}, "auth-tls-secret=a/b": {true, true},
		"rewrite-target=/$1": {}, "rewrite-target=/$host": {true, true}, "rewrite-target=": {true, true},
		"permanent-redirect=https://a.com$request_uri": {}, "permanent-redirect=javascript:x": {true, true},
		"temporal-redirect=https://$remote_addr": {true, true}, "permanent-redirect=/x": {},
		"auth-realm=a\"b": {false, true}, "configuration-snippet=deny all;": {false, true}, "unknown=x": {false, true},
		"permanent-redirect-code=200": {false, true}, "server-alias=a.com,*.b.com": {}, "server-alias=~^x": {false, true},
		"app-root=/x": {}, "app-root=//evil.com": {false, true}, "upstream-vhost=$host": {false, true},
		"upstream-vhost=a.com:80": {}, "affinity=ip": {false, true}, "session-cookie-name=a b": {false, true},
		"session-cookie-samesite=Lax": {}, "canary-weight=-1": {false, true}, "canary-by-header-pattern=(": {false, true},
		"canary-by-header-pattern=(a{999}){9}": {false, true}, "canary-by-header-pattern=a{999}": {},
		"cors-allow-methods=GET\r\nX: y":                         {false, true},
		"traefik.ingress.kubernetes.io/router.entrypoints=web":   {},
		"traefik.ingress.kubernetes.io/router.entrypoints=a":     {false, true},
		"traefik.ingress.kubernetes.io/router.middlewares=a@crd": {false, true},
	} {
		o, bad := parseAnnotations(line)
		if o.Closed != want.closed || (len(bad) > 0) != want.event {
			t.Errorf("%s: closed %v, %q", line, o.Closed, bad)
		}
	}
	for lines, want := range map[string]string{
		"web": "false false", "websecure": "true true", "web,websecure": "true false",
	} {
		o, _ := parseAnnotations("traefik.ingress.kubernetes.io/router.entrypoints=" + lines)
		if got := fmt.Sprint(o.Redirect, " ", o.Forced); got != want {
			t.Errorf("entry points %s: %s, want %s", lines, got, want)
		}
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ pattern, target, path, query, want string }{
		{"/foo(/|$)(.*)", "/$2", "/foo/bar/b", "a=b", "/bar/b?a=b"},
		{"/foo(/|$)(.*)", "/$2", "/FOO", "", "/?"},
		{"/foo", "/", "/foo/bar", "", "/?"},
		{"/(.*)", "/api/$1", "/x", "", "/api/x?"},
		{"/(.*)", "$1", "/x", "", "/x?"},
		{"/x(.*)", "/app/$1", "/x../../secret", "", "/secret?"},
		{"/(.*)", "/$9", "/x", "", "/?"},
		{"/(.*)", "/p?q=$1", "/a&b", "c=d", "/p?q=a%26b&c=d"},
		{"/(.*)", "/$1", "/a\nb", "", "/a\nb?"},
	} {
		re, err := route.CompilePath(row.pattern)
		if err != nil || !re.MatchString(row.path) {
			t.Errorf("%s does not match %s: %v", row.pattern, row.path, err)
			continue
		}
		path, query := route.Rewrite(row.target, re, row.path, row.query)
		if got := path + "?" + query; got != row.want {
			t.Errorf("%s %s: %s, want %s", row.pattern, row.path, got, row.want)
		}
	}
	for _, bad := range []string{"/(", "/a(?!b)", "/(((a{99}){9}){9})"} {
		if _, err := route.CompilePath(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	rule := func(path string) route.Rule[string] {
		re, err := route.CompilePath(path)
		if err != nil {
			t.Fatal(err)
		}
		return route.Rule[string]{Host: "a.com", Path: path, Pattern: re, To: path}
	}
	table, repeated := route.New([]route.Rule[string]{rule("/"), rule("/foo/bar"), rule("/foo/bar/[a-z]{3}"), rule("/foo/.*"),
		rule("/foo/.*"), {Host: "a.com", Path: "/plain", Pattern: route.PlainPath("/plain/", false), To: "plain"},
		{Host: "a.com", Path: "/exact.", Pattern: route.PlainPath("/exact.", true), To: "exact"}})
	if fmt.Sprint(repeated) != "[4]" {
		t.Errorf("repeated: %v", repeated)
	}
	for path, want := range map[string]string{
		"/foo/bar/bar": "/foo/bar/[a-z]{3}", "/foo/bar/1": "/foo/bar", "/FOO/x": "/foo/.*", "/foo": "/", "/plain": "plain",
		"/plain/x": "plain", "/plainx": "/", "/exact.": "exact", "/exactx": "/", "/exact./x": "/",
	} {
		if got, _ := table.Find("a.com", path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	slow, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	file := "# users\nbc:" + string(slow) + "\nbcy:" + strings.Replace(string(slow), "$2a$", "$2y$", 1) + ":comment\n" +
		"apr:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/\nlong:$apr1$12345678$6Kcj5uROwApPjFk4XHnDl1\n" +
		"empty:$apr1$abc$BfqKdn9xFDWJPa3kcp/PH0\n" +
		"sha:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nplain:secret\ncostly:$2a$31$" + strings.Repeat("a", 53) + "\n"
	u, err := route.ParseUsers(&corev1.Secret{Data: map[string][]byte{"auth": []byte(file)}}, false)
	if err == nil || !strings.Contains(err.Error(), `"plain"`) || !strings.Contains(err.Error(), `"costly"`) {
		t.Errorf("error %v", err)
	}
	for range 2 { // the second time from memory
		for pair, want := range map[string]bool{
			"bc:secret": true, "bc:wrong": false, "bc:": false, "bcy:secret": true, "apr:myPassword": true, "apr:mypassword": false,
			"long:a very long password, longer than sixteen bytes": true, "empty:": true, "empty:x": false,
			"sha:secret": true, "sha:x": false, "plain:secret": false, "nobody:secret": false, ":": false, "costly:x": false,
		} {
			name, password, _ := strings.Cut(pair, ":")
			if u.Check(name, password) != want {
				t.Errorf("%s: %v", pair, !want)
			}
		}
	}
	byKey := &corev1.Secret{Data: map[string][]byte{"sha": []byte("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n")}}
	if u, err = route.ParseUsers(byKey, true); err != nil || !u.Check("sha", "secret") {
		t.Errorf("a key for each user: %v", err)
	}
	if u, err = route.ParseUsers(byKey, false); u != nil || err == nil {
		t.Errorf("without a file: %v, %v", u, err)
	}
}

// The order is that of ingress-nginx: header, cookie, weight.
func TestCanary(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		annotations, request string
		want                 bool
	}{
		{"canary-weight=30", "", true}, {"canary-weight=29", "", false}, {"", "", false}, {"canary-weight=100", "", true},
		{"canary-weight=30 canary-weight-total=1000", "", false},
		{"canary-by-header=X", "X: always", true}, {"canary-by-header=X canary-weight=100", "X: never", false},
		{"canary-by-header=X canary-weight=100", "X: other", true}, {"canary-by-header=X", "", false},
		{"canary-by-header=X canary-by-header-value=v", "X: v", true},
		{"canary-by-header=X canary-by-header-value=v", "X: always", false},
		{"canary-by-header=X canary-by-header-pattern=^v[0-9]", "X: v1", true},
		{"canary-by-header=X canary-by-header-pattern=^v[0-9]", "X: w", false},
		{"canary-by-cookie=c", "Cookie: c=always", true}, {"canary-by-cookie=c canary-weight=100", "Cookie: c=never", false},
		{"canary-by-header=X canary-by-cookie=c", "X: never\nCookie: c=always", false},
		{"canary-by-header=X canary-by-cookie=c", "X: ?\nCookie: c=always", true},
	} {
		o, bad := parseAnnotations(strings.Fields(row.annotations)...)
		if len(bad) > 0 {
			t.Errorf("%s: %s", row.annotations, bad)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for line := range strings.SplitSeq(row.request, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				r.Header.Set(name, value)
			}
		}
		if got := o.Canary.Chosen(r, func(n int) int { return n * 29 / 100 }); got != row.want {
			t.Errorf("%s, %s: %v", row.annotations, row.request, got)
		}
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ origins, from, want string }{
		{"", "https://x.com", "*"}, {"*", "", "*"}, {"https://a.com, http://b.com:81", "http://b.com:81", "http://b.com:81"},
		{"https://a.com", "https://a.com.evil.com", ""}, {"https://a.com", "https://a-com", ""},
		{"https://*.a.com", "https://x.a.com", "https://x.a.com"}, {"https://*.a.com", "https://x.y.a.com", ""},
		{"https://*.a.com", "https://a.com", ""}, {"a.com", "https://a.com", ""}, {"https://a.com", "", ""},
	} {
		lines := []string{"enable-cors=true"}
		if row.origins != "" {
			lines = append(lines, "cors-allow-origin="+row.origins)
		}
		o, _ := parseAnnotations(lines...)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Origin", row.from)
		if got := o.CORS.Allows(r); got != row.want {
			t.Errorf("%s from %s: %q", row.origins, row.from, got)
		}
	}
}
