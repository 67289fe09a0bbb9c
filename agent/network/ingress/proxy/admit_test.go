package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/ingress/route"
)

// annotated returns a rule whose options come from annotations.
func (s *stage) annotated(host, path string, what Servers, annotations ...string) route.Rule[*Destination] {
	s.t.Helper()
	set := map[string]string{}
	for _, line := range annotations {
		name, value, _ := strings.Cut(line, "=")
		set[route.NginxPrefix+name] = value
	}
	o, bad := route.ParseAnnotations(set, route.Options{Wait: WaitTime})
	if len(bad) > 0 {
		s.t.Log(bad)
	}
	r := s.rule(host, path, o, what)
	if o.Regex {
		re, err := route.CompilePath(path)
		if err != nil {
			s.t.Fatal(err)
		}
		r.Pattern, r.To.Pattern = re, re
	}
	return r
}

// answer sends a request and returns the code, the body, and the values of some headers of the response.
func answer(t *testing.T, c *http.Client, method, url string, header ...string) (string, *http.Response) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", string(body), resp.Header.Get("Location"))), resp
}

func TestAnnotationsForPaths(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Host, r.RequestURI, r.Header.Get("X-Forwarded-Prefix"))
		})
		at := at80("10.0.0.1:80")
		s.use(nil, s.annotated("re.com", "/foo(/|$)(.*)", at, "rewrite-target=/$2", "x-forwarded-prefix=/foo"),
			s.annotated("bad.com", "/", at, "rewrite-target=/$host"),
			s.annotated("root.com", "/", at, "app-root=/ui"),
			s.annotated("moved.com", "/", at, "permanent-redirect=https://b.com$request_uri", "permanent-redirect-code=308"),
			s.annotated("temp.com", "/", at, "permanent-redirect=https://b.com", "temporal-redirect=$scheme://c.com"),
			s.annotated("vhost.com", "/", at, "upstream-vhost=inner.local"))
		c := s.client()
		for url, want := range map[string]string{
			"re.com/foo/a%20b/c?x=y": "200 re.com/a%20b/c?x=y/foo", "re.com/FOO": "200 re.com//foo",
			"re.com/foo/..%2f..%2fx": "404 no Ingress has a rule for this host and path",
			"re.com/foo/a%3fb":       "200 re.com/a%3Fb/foo",
			"bad.com/":               "503 an annotation of the Ingress that restricts access is invalid",
			"root.com/":              "302 /ui", "root.com/ui": "200 root.com/ui",
			"moved.com/a?b": "308 https://b.com/a?b", "temp.com/": "302 http://c.com", "vhost.com/": "200 inner.local/",
		} {
			if got, _ := answer(t, c, http.MethodGet, "http://"+url); got != want {
				t.Errorf("%s: %s, want %s", url, got, want)
			}
		}
		got, resp := answer(t, c, http.MethodGet, "http://no.com/", "Accept: text/html,*/*")
		if !strings.Contains(got, "<p>No Ingress has a rule") || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			t.Errorf("the page of a browser is %s", got)
		}
	})
}

func TestAddressLists(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		h := s.open("http", nil)
		s.endpoint("10.0.0.1:80", answers("ok"))
		at := at80("10.0.0.1:80")
		s.use(nil, s.annotated("in.com", "/", at, "whitelist-source-range=192.0.2.0/24"),
			s.annotated("out.com", "/", at, "allowlist-source-range=10.0.0.0/8, ::/0"),
			s.annotated("deny.com", "/", at, "denylist-source-range=192.0.2.1"),
			s.annotated("far.com", "/", at, "whitelist-source-range=1.1.1.1"))
		c := s.client()
		const refused = "403 the address of the client is not allowed"
		check := func(want map[string]string, header ...string) {
			t.Helper()
			for host, want := range want {
				if got, _ := answer(t, c, http.MethodGet, "http://"+host+"/", header...); got != want {
					t.Errorf("%s: %s, want %s", host, got, want)
				}
			}
		}
		spoofed := "X-Forwarded-For: 1.1.1.1"
		check(map[string]string{"in.com": "200 ok", "out.com": refused, "deny.com": refused, "far.com": refused}, spoofed)
		h.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		check(map[string]string{"in.com": refused, "deny.com": "200 ok", "far.com": "200 ok"}, spoofed)
		check(map[string]string{"in.com": refused, "deny.com": refused, "far.com": refused}, "X-Forwarded-For: unknown")
	})
}

func TestBasicAuthentication(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", answers("ok"))
		at := at80("10.0.0.1:80")
		with := s.annotated("a.com", "/", at, "auth-type=basic", "auth-secret=users", "auth-realm=staff")
		var err error
		with.To.Users, err = route.ParseUsers(&corev1.Secret{Data: map[string][]byte{
			"auth": []byte("me:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=")}}, false)
		if err != nil {
			t.Fatal(err)
		}
		s.use(nil, with, s.annotated("missing.com", "/", at, "auth-secret=users"))
		c := s.client()
		const wrong = "401 the name or the password is missing or wrong"
		for _, row := range []struct{ credentials, want string }{
			{"me:secret", "200 ok"}, {"me:no", wrong}, {"you:secret", wrong}, {"", wrong},
		} {
			user, password, _ := strings.Cut(row.credentials, ":")
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.com/", nil)
			r.SetBasicAuth(user, password)
			if got := do(t, c, r); got != row.want {
				t.Errorf("%s: %s, want %s", row.credentials, got, row.want)
			}
		}
		if _, resp := answer(t, c, http.MethodGet, "http://a.com/"); resp.Header.Get("WWW-Authenticate") != `Basic realm="staff"` {
			t.Errorf("the response asks for %q", resp.Header.Get("WWW-Authenticate"))
		}
		if got, _ := answer(t, c, http.MethodGet, "http://missing.com/"); !strings.HasPrefix(got, "503 ") {
			t.Errorf("without the Secret: %s", got)
		}
	})
}

func TestCORS(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "http://theirs.com")
		})
		s.use(nil, s.annotated("a.com", "/", at80("10.0.0.1:80"), "enable-cors=true", "cors-allow-origin=https://b.com",
			"cors-allow-methods=GET, PUT", "cors-expose-headers=X-A", "cors-max-age=600", "auth-secret=users"),
			s.annotated("b.com", "/", at80("10.0.0.1:80"), "enable-cors=true", "cors-allow-credentials=false"))
		c := s.client()
		show := func(method, url, origin string) string {
			got, resp := answer(t, c, method, url, "Origin: "+origin)
			h := resp.Header
			return strings.Join([]string{got[:3], h.Get("Access-Control-Allow-Origin"), h.Get("Access-Control-Allow-Methods"),
				h.Get("Access-Control-Expose-Headers"), h.Get("Access-Control-Max-Age"),
				h.Get("Access-Control-Allow-Credentials"), h.Get("Vary")}, " | ")
		}
		for _, row := range []struct{ method, url, origin, want string }{
			{"OPTIONS", "http://a.com/", "https://b.com", "204 | https://b.com | GET, PUT | X-A | 600 | true | Origin"},
			{"GET", "http://a.com/", "https://b.com", "503 | https://b.com | GET, PUT | X-A |  | true | Origin"},
			{"OPTIONS", "http://a.com/", "https://evil.com", "503 |  |  |  |  |  | "},
			{"GET", "http://b.com/", "https://x.com", "200 | * | GET, PUT, POST, DELETE, PATCH, OPTIONS |  |  |  | "},
		} {
			if got := show(row.method, row.url, row.origin); got != row.want {
				t.Errorf("%s %s from %s:\n%s, want\n%s", row.method, row.url, row.origin, got, row.want)
			}
		}
	})
}

func TestStickyCookieAndCanary(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		for _, name := range []string{"1", "2", "3", "9"} {
			s.endpoint("10.0.0."+name+":80", answers("from "+name))
		}
		three := at80("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
		sticky := s.annotated("a.com", "/app", three, "affinity=cookie", "session-cookie-name=route",
			"session-cookie-max-age=60", "session-cookie-samesite=Strict", "session-cookie-secure=true")
		sticky.To.Path = "/app"
		s.use(nil, sticky)
		c := s.client()
		first, resp := answer(t, c, http.MethodGet, "http://a.com/app")
		if len(resp.Cookies()) != 1 {
			t.Fatalf("cookies %q", resp.Cookies())
		}
		cookie := resp.Cookies()[0]
		if cookie.Name != "route" || cookie.Path != "/app" || cookie.MaxAge != 60 || !cookie.HttpOnly || !cookie.Secure ||
			cookie.SameSite != http.SameSiteStrictMode || strings.Contains(cookie.Value, "10.0.0") {
			t.Errorf("cookie %s", cookie)
		}
		header := "Cookie: route=" + cookie.Value
		for range 5 {
			if got, resp := answer(t, c, http.MethodGet, "http://a.com/app", header); got != first || len(resp.Cookies()) > 0 {
				t.Errorf("%s with the cookie of %s, and cookies %q", got, first, resp.Cookies())
			}
		}
		gone := at80("10.0.0.9:80")
		sticky.To.Backend.Set(gone)
		if got, resp := answer(t, c, http.MethodGet, "http://a.com/app", header); got != "200 from 9" || len(resp.Cookies()) != 1 {
			t.Errorf("%s after the endpoint is gone, and cookies %q", got, resp.Cookies())
		}

		canary := s.annotated("a.com", "/app", gone, "canary=true", "canary-by-header=X-Canary", "canary-weight=0")
		sticky.To.Backend.Set(three)
		sticky.To.Canary = &Canary{Canary: canary.To.Options.Canary, To: canary.To}
		for line, want := range map[string]string{"X-Canary: always": "9", "X-Canary: never": "123", "X-Other: x": "123"} {
			if got, _ := answer(t, c, http.MethodGet, "http://a.com/app", line); !strings.Contains(want, got[len(got)-1:]) {
				t.Errorf("%s: %s", line, got)
			}
		}
		if got, _ := answer(t, c, http.MethodGet, "http://a.com/app", header, "X-Canary: always"); got != first {
			t.Errorf("%s, although the client has the cookie of %s", got, first)
		}
	})
}

func TestTimeouts(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.net.listen("10.0.0.1:80") // nobody accepts
		s.endpoint("10.0.0.2:80", func(http.ResponseWriter, *http.Request) { time.Sleep(30 * time.Second) })
		s.use(nil, s.annotated("", "/dial", at80("10.0.0.1:80"), "proxy-connect-timeout=20"),
			s.annotated("", "/read", at80("10.0.0.2:80"), "proxy-read-timeout=3", "proxy-send-timeout=7"))
		c := s.client()
		for path, want := range map[string]time.Duration{"/dial": 20 * time.Second, "/read": 3 * time.Second} {
			began := time.Now()
			if got := get(t, c, "http://a.com"+path); time.Since(began) != want || got[0] != '5' {
				t.Errorf("%s: %s after %s", path, got, time.Since(began))
			}
		}
		began := time.Now()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.com/read", strings.NewReader(strings.Repeat("x",
			8<<20)))
		if got := do(t, c, r); got != "504 the endpoint did not answer in time" || time.Since(began).Truncate(time.Second) != 7*time.Second {
			t.Errorf("a body that the endpoint does not read: %s after %s", got, time.Since(began))
		}
		time.Sleep(time.Minute) // until the endpoint's handlers end
	})
}
