package route

import (
	"fmt"
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
}

// The prefixes of annotations. Their names and meanings are those of ingress-nginx.
const (
	OwnPrefix   = "monopod.io/"
	NginxPrefix = "nginx.ingress.kubernetes.io/"
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
	"proxy-read-timeout": func(o *Options, v string) string {
		n, ok := seconds(v)
		if !ok {
			return "a number of seconds"
		}
		o.Wait = n
		return ""
	},
}

// ParseAnnotations returns the options with the changes of annotations, and a message about each invalid one.
func ParseAnnotations(annotations map[string]string, o Options) (set Options, bad []string) {
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
