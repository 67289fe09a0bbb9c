package route

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Options are the settings of an Ingress that annotations can change.
type Options struct {
	Redirect bool          // HTTP to HTTPS, for hosts with a certificate
	Forced   bool          // also for hosts without a certificate
	Protocol string        // of the endpoints: HTTP, HTTPS, GRPC, GRPCS; empty: the Service's appProtocol
	MaxBody  int64         // bytes; 0: no limit
	Wait     time.Duration // until the headers of a response
	Send     time.Duration // that an endpoint may read nothing of a body; 0: Wait
	Connect  time.Duration // to an endpoint; 0: the proxy's default

	Closed  bool     // an annotation that restricts access has no effect: no request is served
	Regex   bool     // paths are regular expressions
	Rewrite string   // the path for the endpoint, with $1 to $9; empty: unchanged
	Prefix  string   // X-Forwarded-Prefix, with $1 to $9
	Host    string   // header for the endpoint; empty: the client's
	AppRoot string   // where requests for / are redirected; empty: they are not
	Moved   Moved    // where all requests are redirected
	Aliases []string // further names of the rules' hosts
	WWW     bool     // the host with or without www. redirects to the rule's

	Allow, Deny []netip.Prefix // clients; without Allow: all
	Auth        Auth
	CORS        CORS
	Sticky      Sticky
	Canary      Canary
}

// Moved is a redirect, with variables that Expand knows. The temporary one takes precedence.
type Moved struct {
	Permanent, Temporary         string
	PermanentCode, TemporaryCode int // 0: 301 and 302
}

// Auth is a basic authentication.
type Auth struct {
	Type   string // basic; empty: none, unless there is a Secret
	Secret string // its name, in the Ingress's namespace
	Realm  string
	Map    bool // the Secret has a key for each user; false: a file of htpasswd
}

// On reports whether clients must authenticate.
func (a *Auth) On() bool { return a.Type != "" || a.Secret != "" }

// Sticky is a cookie that keeps a client at an endpoint.
type Sticky struct {
	On             bool
	Name           string // empty: INGRESSCOOKIE
	Path           string // empty: that of the rule
	MaxAge, Expire time.Duration
	SameSite       http.SameSite
	Secure         bool
}

// The prefixes of annotations. Their names and meanings are those of ingress-nginx and Traefik.
const (
	OwnPrefix     = "monopod.io/"
	NginxPrefix   = "nginx.ingress.kubernetes.io/"
	TraefikPrefix = "traefik.ingress.kubernetes.io/"
)

// setters are the annotations without their prefix. A setter returns a description of valid values if the value is
// invalid, otherwise an empty string.
var setters = map[string]func(o *Options, value string) string{
	"ssl-redirect":       func(o *Options, v string) string { return setBool(&o.Redirect, v) },
	"force-ssl-redirect": func(o *Options, v string) string { return setBool(&o.Forced, v) },
	"backend-protocol": func(o *Options, v string) string {
		if v = strings.ToUpper(v); !slices.Contains([]string{"HTTP", "HTTPS", "GRPC", "GRPCS"}, v) {
			return "HTTP, HTTPS, GRPC or GRPCS"
		}
		o.Protocol = v
		return ""
	},
	"proxy-body-size": func(o *Options, v string) string {
		n, ok := size(v)
		if !ok {
			return "a size such as 8m, 1g or 0"
		}
		o.MaxBody = n
		return ""
	},
	"proxy-connect-timeout": func(o *Options, v string) string { return setSeconds(&o.Connect, v) },
	"proxy-send-timeout":    func(o *Options, v string) string { return setSeconds(&o.Send, v) },
	"proxy-read-timeout":    func(o *Options, v string) string { return setSeconds(&o.Wait, v) },

	"use-regex":             func(o *Options, v string) string { return setBool(&o.Regex, v) },
	"rewrite-target":        func(o *Options, v string) string { return setGroups(&o.Rewrite, v) },
	"x-forwarded-prefix":    func(o *Options, v string) string { return setGroups(&o.Prefix, v) },
	"app-root":              func(o *Options, v string) string { return setPath(&o.AppRoot, v) },
	"permanent-redirect":    func(o *Options, v string) string { return setURL(&o.Moved.Permanent, v) },
	"temporal-redirect":     func(o *Options, v string) string { return setURL(&o.Moved.Temporary, v) },
	"from-to-www-redirect":  func(o *Options, v string) string { return setBool(&o.WWW, v) },
	"upstream-vhost":        func(o *Options, v string) string { return setHost(&o.Host, v) },
	"server-alias":          func(o *Options, v string) string { return setHosts(&o.Aliases, v) },
	"denylist-source-range": func(o *Options, v string) string { return setPrefixes(&o.Deny, v) },
	"permanent-redirect-code": func(o *Options, v string) string {
		return setNumber(&o.Moved.PermanentCode, v, 300, 308)
	},
	"temporal-redirect-code": func(o *Options, v string) string {
		return setNumber(&o.Moved.TemporaryCode, v, 300, 308)
	},
	"whitelist-source-range": func(o *Options, v string) string { return setPrefixes(&o.Allow, v) },
	"allowlist-source-range": func(o *Options, v string) string { return setPrefixes(&o.Allow, v) },

	"auth-type":   func(o *Options, v string) string { return setOneOf(&o.Auth.Type, v, "basic") },
	"auth-secret": func(o *Options, v string) string { return setName(&o.Auth.Secret, v) },
	"auth-realm":  func(o *Options, v string) string { return setText(&o.Auth.Realm, v) },
	"auth-secret-type": func(o *Options, v string) string {
		var form string
		defer func() { o.Auth.Map = form == "auth-map" }()
		return setOneOf(&form, v, "auth-file", "auth-map")
	},
	"auth-url":        unsupported,
	"auth-tls-secret": unsupported,

	"enable-cors":            func(o *Options, v string) string { return setBool(&o.CORS.On, v) },
	"cors-allow-origin":      func(o *Options, v string) string { return setOrigins(&o.CORS, v) },
	"cors-allow-methods":     func(o *Options, v string) string { return setTokens(&o.CORS.Methods, v) },
	"cors-allow-headers":     func(o *Options, v string) string { return setTokens(&o.CORS.Headers, v) },
	"cors-expose-headers":    func(o *Options, v string) string { return setTokens(&o.CORS.Expose, v) },
	"cors-allow-credentials": func(o *Options, v string) string { return setFalse(&o.CORS.NoCredentials, v) },
	"cors-max-age":           func(o *Options, v string) string { return setSeconds(&o.CORS.MaxAge, v) },

	"affinity": func(o *Options, v string) string {
		var kind string
		defer func() { o.Sticky.On = kind != "" }()
		return setOneOf(&kind, v, "cookie")
	},
	"session-cookie-name":    func(o *Options, v string) string { return setCookie(&o.Sticky.Name, v) },
	"session-cookie-path":    func(o *Options, v string) string { return setPath(&o.Sticky.Path, v) },
	"session-cookie-max-age": func(o *Options, v string) string { return setSeconds(&o.Sticky.MaxAge, v) },
	"session-cookie-expires": func(o *Options, v string) string { return setSeconds(&o.Sticky.Expire, v) },
	"session-cookie-secure":  func(o *Options, v string) string { return setBool(&o.Sticky.Secure, v) },
	"session-cookie-samesite": func(o *Options, v string) string {
		mode, ok := map[string]http.SameSite{"none": http.SameSiteNoneMode, "lax": http.SameSiteLaxMode,
			"strict": http.SameSiteStrictMode}[strings.ToLower(v)]
		if !ok {
			return "None, Lax or Strict"
		}
		o.Sticky.SameSite = mode
		return ""
	},

	"canary":                   func(o *Options, v string) string { return setBool(&o.Canary.On, v) },
	"canary-weight":            func(o *Options, v string) string { return setNumber(&o.Canary.Weight, v, 0, maxWeight) },
	"canary-weight-total":      func(o *Options, v string) string { return setNumber(&o.Canary.Total, v, 1, maxWeight) },
	"canary-by-header":         func(o *Options, v string) string { return setTokens(&o.Canary.Header, v) },
	"canary-by-header-value":   func(o *Options, v string) string { return setText(&o.Canary.Value, v) },
	"canary-by-header-pattern": func(o *Options, v string) string { return setPattern(&o.Canary.Pattern, v) },
	"canary-by-cookie":         func(o *Options, v string) string { return setCookie(&o.Canary.Cookie, v) },
}

// traefikSetters are those of Traefik's annotations.
var traefikSetters = map[string]func(o *Options, value string) string{
	"router.entrypoints": func(o *Options, v string) string {
		var web, secure bool
		for name := range strings.SplitSeq(v, ",") {
			switch strings.TrimSpace(name) {
			case "web":
				web = true
			case "websecure":
				secure = true
			default:
				return "web, websecure or both"
			}
		}
		o.Forced = o.Forced || !web
		o.Redirect = o.Redirect && secure
		return ""
	},
	"router.tls": func(o *Options, v string) string {
		var on bool
		defer func() { o.Forced = o.Forced || on }()
		return setBool(&on, v)
	},
}

// closing are annotations that restrict who reaches what. If one is invalid, the Ingress is not served, because
// without it more would be reachable than its author wants.
var closing = []string{"rewrite-target", "permanent-redirect", "temporal-redirect", "whitelist-source-range",
	"allowlist-source-range", "denylist-source-range", "auth-type", "auth-secret", "auth-secret-type", "auth-url",
	"auth-tls-secret"}

// never are annotations that would let the author of an Ingress configure the whole server.
var never = []string{"configuration-snippet", "server-snippet", "auth-snippet", "stream-snippet", "modsecurity-snippet"}

// unsupported is the setter of an annotation that is not supported, and without which an Ingress must not be served.
func unsupported(*Options, string) string { return "absent, because it is not supported" }

// ParseAnnotations returns the options with the changes of annotations, and a message about each invalid one.
func ParseAnnotations(annotations map[string]string, o Options) (set Options, bad []string) {
	for _, one := range []struct {
		prefix  string
		setters map[string]func(*Options, string) string
	}{{TraefikPrefix, traefikSetters}, {NginxPrefix, setters}, {OwnPrefix, setters}} { // Monopod's own take precedence
		for key, value := range annotations {
			name, ok := strings.CutPrefix(key, one.prefix)
			if !ok {
				continue
			}
			set := one.setters[name]
			switch {
			case slices.Contains(never, name):
				bad = append(bad, fmt.Sprintf("annotation %s has no effect: text for a server's configuration is never used", key))
				continue
			case set == nil:
				bad = append(bad, fmt.Sprintf("annotation %s has no effect", key))
				continue
			}
			want := set(&o, strings.TrimSpace(value))
			if want == "" {
				continue
			}
			text := fmt.Sprintf("annotation %s must be %s, got %q", key, want, value)
			if slices.Contains(closing, name) {
				o.Closed = true
				text += "; requests are answered with 503"
			}
			bad = append(bad, text)
		}
	}
	if o.Auth.On() && o.Auth.Secret == "" && !o.Closed {
		o.Closed = true
		bad = append(bad, "annotation auth-type needs auth-secret; requests are answered with 503")
	}
	o.Regex = o.Regex || o.Rewrite != ""
	slices.Sort(bad)
	return o, bad
}
