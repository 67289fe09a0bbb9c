package route

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options are what annotations of an Ingress set.
type Options struct {
	Redirect bool          // HTTP to HTTPS, for hosts with a certificate
	Forced   bool          // also for the others
	Protocol string        // of the endpoints: HTTP, HTTPS, GRPC, GRPCS; empty: the Service's appProtocol
	MaxBody  int64         // bytes; 0: no limit
	Wait     time.Duration // until the headers of a response
}

// The annotations have Monopod's prefix, or that of ingress-nginx, whose names and meanings they have.
const (
	OwnPrefix   = "monopod.io/"
	NginxPrefix = "nginx.ingress.kubernetes.io/"
)

// setters are the annotations without their prefix. A setter returns what the value must be, or an empty string if it
// was accepted.
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
	"proxy-read-timeout": func(o *Options, v string) string {
		n, ok := positive(v)
		if !ok {
			return "a number of seconds"
		}
		o.Wait = n
		return ""
	},
}

// Of returns the options that annotations set, and what is wrong with them.
func Of(annotations map[string]string, o Options) (set Options, bad []string) {
	for _, prefix := range []string{NginxPrefix, OwnPrefix} { // Monopod's own take precedence
		for key, value := range annotations {
			name, ok := strings.CutPrefix(key, prefix)
			if !ok {
				continue
			}
			set := setters[name]
			if set == nil {
				bad = append(bad, fmt.Sprintf("annotation %s has no effect", key))
			} else if want := set(&o, value); want != "" {
				bad = append(bad, fmt.Sprintf("annotation %s must be %s, got %q", key, want, value))
			}
		}
	}
	slices.Sort(bad)
	return o, bad
}
