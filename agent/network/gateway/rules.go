package gateway

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"monopod/agent/network/ingress/proxy"
	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

// compiledRoute is a route without its hosts.
type compiledRoute struct {
	rules       []route.HTTPRule[*proxy.Split]
	unsupported string // what the route has that is not supported; empty: nothing
	unresolved  string // which reference is not valid; empty: all are
	reason      gatewayv1.RouteConditionReason
}

func compileRoute(r *routeObject, o *objects, s surroundings) *compiledRoute {
	c := &compiledRoute{reason: gatewayv1.RouteReasonResolvedRefs}
	for i := range r.rules {
		rule := &r.rules[i]
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.HTTPRouteMatch{{}}
		}
		for _, m := range matches {
			compiled, err := compileMatch(&m)
			if err != nil {
				c.unsupported = err.Error()
				return c
			}
			split, err := c.split(r, rule, compiled.Path, o, s)
			if err != nil {
				c.unsupported = err.Error()
				return c
			}
			compiled.To = split
			c.rules = append(c.rules, compiled)
		}
	}
	return c
}

// split returns the destinations of a rule.
func (c *compiledRoute) split(r *routeObject, rule *gatewayv1.HTTPRouteRule, path string, o *objects,
	s surroundings) (*proxy.Split, error) {
	base := proxy.Destination{Ingress: follow.Key{Namespace: r.Namespace, Name: r.kind + "/" + r.Name},
		Options: s.defaults}
	if err := timeouts(&base.Options, rule.Timeouts); err != nil {
		return nil, err
	}
	if err := filter(&base, rule.Filters, path); err != nil {
		return nil, err
	}
	out := &proxy.Split{}
	add := func(to proxy.Destination, weight int) {
		out.Choices = append(out.Choices, proxy.Choice{To: &to, Weight: weight})
		out.Total += weight
	}
	for i := range rule.BackendRefs {
		ref := &rule.BackendRefs[i]
		to := base
		name, reason, text := o.serviceKey(r, &ref.BackendObjectReference, s)
		if text == "" && ref.Port == nil {
			reason, text = gatewayv1.RouteReasonUnsupportedProtocol, fmt.Sprintf("the backend %q has no port", name)
		}
		if text != "" {
			c.reason, c.unresolved, to.Broken = reason, text, text
		}
		to.Target = proxy.Target{Service: name, Port: networkingv1.ServiceBackendPort{Number: value(ref.Port)}}
		if r.kind == kindGRPC {
			to.Override = "GRPC"
		}
		to.Filters.Request = slices.Clip(to.Filters.Request) // so that backends do not share what is appended
		to.Filters.Response = slices.Clip(to.Filters.Response)
		if err := filter(&to, ref.Filters, path); err != nil {
			return nil, err
		}
		if weight := ref.Weight; weight == nil {
			add(to, 1)
		} else if *weight > 0 {
			add(to, int(*weight))
		}
	}
	if len(out.Choices) == 0 {
		if base.Filters.Redirect == nil {
			base.Broken = "the route's rule has no backend"
		}
		add(base, 1)
	}
	return out, nil
}

func timeouts(o *route.Options, t *gatewayv1.HTTPRouteTimeouts) error {
	for _, d := range []*gatewayv1.Duration{value(t).Request, value(t).BackendRequest} {
		if d == nil {
			continue
		}
		wait, err := time.ParseDuration(string(*d))
		if err != nil {
			return fmt.Errorf("the timeout %q is not a duration", *d)
		}
		o.Wait = wait // 0: none
	}
	return nil
}

func compileMatch(m *gatewayv1.HTTPRouteMatch) (rule route.HTTPRule[*proxy.Split], err error) {
	rule.Method = string(value(m.Method))
	path := value(m.Path)
	rule.Path = value(path.Value)
	switch value(path.Type) {
	case gatewayv1.PathMatchExact:
		rule.Exact = true
	case gatewayv1.PathMatchRegularExpression:
		rule.Pattern, err = route.Compile("^(?:" + rule.Path + ")$")
		if err != nil {
			return rule, fmt.Errorf("the path %q is not a regular expression: %w", rule.Path, err)
		}
	}
	for _, h := range m.Headers {
		f, err := field(http.CanonicalHeaderKey(string(h.Name)), h.Value,
			value(h.Type) == gatewayv1.HeaderMatchRegularExpression)
		if err != nil {
			return rule, err
		}
		rule.Headers = append(rule.Headers, f)
	}
	for _, q := range m.QueryParams {
		f, err := field(string(q.Name), q.Value, value(q.Type) == gatewayv1.QueryParamMatchRegularExpression)
		if err != nil {
			return rule, err
		}
		rule.Query = append(rule.Query, f)
	}
	return rule, nil
}

func field(name, text string, expression bool) (f route.Field, err error) {
	f = route.Field{Name: name, Value: text}
	if expression {
		if f.Pattern, err = route.Compile("^(?:" + text + ")$"); err != nil {
			err = fmt.Errorf("the value of %q is not a regular expression: %w", name, err)
		}
	}
	return f, err
}

// filter adds filters to a destination; path is that of the rule.
func filter(to *proxy.Destination, filters []gatewayv1.HTTPRouteFilter, path string) error {
	for i := range filters {
		var err error
		switch f := &filters[i]; {
		case f.RequestHeaderModifier != nil:
			to.Filters.Request, err = headerChanges(to.Filters.Request, f.RequestHeaderModifier)
		case f.ResponseHeaderModifier != nil:
			to.Filters.Response, err = headerChanges(to.Filters.Response, f.ResponseHeaderModifier)
		case f.RequestRedirect != nil:
			d := f.RequestRedirect
			to.Filters.Redirect = &route.Redirect{Scheme: value(d.Scheme), Host: string(value(d.Hostname)),
				Port: value(d.Port), Path: pathChange(d.Path, path), Code: value(d.StatusCode)}
		case f.URLRewrite != nil:
			to.Options.Host = string(value(f.URLRewrite.Hostname))
			to.Filters.Path = pathChange(f.URLRewrite.Path, path)
		case f.CORS != nil:
			to.CORS = corsOf(f.CORS)
		default:
			err = fmt.Errorf("filters of the type %s are not supported", f.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fixedHeaders belong to the connection or say where a message ends. One that a route sets could let a client and a proxy
// disagree about the end of a response, and a Host would be ignored.
var fixedHeaders = []string{"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade"}

// headerChanges appends the changes of a filter.
func headerChanges(list []route.HeaderChange, f *gatewayv1.HTTPHeaderFilter) ([]route.HeaderChange, error) {
	first := len(list)
	for _, h := range f.Set {
		list = append(list, route.HeaderChange{Op: route.SetHeader, Name: string(h.Name), Value: h.Value})
	}
	for _, h := range f.Add {
		list = append(list, route.HeaderChange{Op: route.AddHeader, Name: string(h.Name), Value: h.Value})
	}
	for _, name := range f.Remove {
		list = append(list, route.HeaderChange{Op: route.RemoveHeader, Name: name})
	}
	for _, c := range list[first:] {
		if slices.Contains(fixedHeaders, http.CanonicalHeaderKey(c.Name)) {
			return nil, fmt.Errorf("filters cannot change the header %s", c.Name)
		}
	}
	return list, nil
}

func pathChange(m *gatewayv1.HTTPPathModifier, path string) *route.PathChange {
	if m == nil {
		return nil
	}
	if m.ReplacePrefixMatch != nil {
		if path == "" {
			path = "/"
		}
		return &route.PathChange{Prefix: path, To: *m.ReplacePrefixMatch}
	}
	return &route.PathChange{To: value(m.ReplaceFullPath)}
}

func corsOf(f *gatewayv1.HTTPCORSFilter) route.CORS {
	c := route.CORS{On: true, Exact: true, Origins: []*regexp.Regexp{}, NoCredentials: !value(f.AllowCredentials),
		MaxAge: time.Duration(f.MaxAge) * time.Second}
	for _, origin := range f.AllowOrigins {
		if origin == "*" {
			c.Origins = nil
			break
		}
		pattern := strings.ReplaceAll(regexp.QuoteMeta(string(origin)), `\*`, ".+")
		c.Origins = append(c.Origins, regexp.MustCompile("^"+pattern+"$"))
	}
	c.Methods, c.Headers, c.Expose = joined(f.AllowMethods), joined(f.AllowHeaders), joined(f.ExposeHeaders)
	return c
}

func joined[T ~string](values []T) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, string(v))
	}
	return strings.Join(texts, ", ")
}
