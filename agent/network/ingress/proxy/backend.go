package proxy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"monopod/apiserver/kit/follow"
)

// protocol is the protocol of a backend.
type protocol int

const (
	http1 protocol = iota // HTTP/1.1
	h2c                   // HTTP/2 without TLS
	https                 // HTTPS, HTTP/1.1 or 2
)

// Target names a port of a Service.
type Target struct {
	Service  follow.Key
	Port     networkingv1.ServiceBackendPort
	Override string // an annotation's protocol; empty: the Service's
}

// Servers are the servers of a target.
type Servers struct {
	addresses []string // host:port, sorted; empty: no endpoint is ready
	protocol  protocol
	external  bool   // the host is a name outside of the cluster
	problem   string // the reason why the target cannot be served; empty: it can
}

// Resolve returns the servers of a target: its ready endpoints, or without any, those that still serve while they
// terminate, as kube-proxy does. svc is nil if the Service does not exist.
func Resolve(t Target, svc *corev1.Service, eps []*discoveryv1.EndpointSlice) Servers {
	if svc == nil {
		return Servers{problem: fmt.Sprintf("Service %q does not exist", t.Service.Name)}
	}
	port := findPort(svc, t.Port)
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return external(t, svc, port)
	}
	if port == nil {
		return Servers{problem: fmt.Sprintf("Service %q has no port %s", t.Service.Name, PortText(t.Port))}
	}
	if port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
		return Servers{problem: fmt.Sprintf("port %s of Service %q is not a TCP port", PortText(t.Port), t.Service.Name)}
	}
	s := Servers{protocol: t.protocol(port)}
	var terminating []string
	for _, slice := range eps {
		number := endpointPort(slice, port.Name)
		if number == 0 || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			at := net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(number)))
			switch c := &e.Conditions; {
			case conditionOr(c.Ready, true):
				s.addresses = append(s.addresses, at)
			case conditionOr(c.Serving, true) && conditionOr(c.Terminating, false):
				terminating = append(terminating, at)
			}
		}
	}
	if len(s.addresses) == 0 {
		s.addresses = terminating
	}
	slices.Sort(s.addresses)
	s.addresses = slices.Compact(s.addresses)
	return s
}

func conditionOr(condition *bool, unset bool) bool {
	if condition == nil {
		return unset
	}
	return *condition
}

// external returns the server of an ExternalName Service, which needs no ports if the target has a number.
func external(t Target, svc *corev1.Service, port *corev1.ServicePort) Servers {
	number := t.Port.Number
	if port != nil {
		number = port.Port
	}
	if number == 0 {
		return Servers{problem: fmt.Sprintf("Service %q has no port %s", t.Service.Name, PortText(t.Port))}
	}
	return Servers{addresses: []string{net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(number)))},
		protocol: t.protocol(port), external: true}
}

func (t Target) protocol(port *corev1.ServicePort) protocol {
	switch t.Override {
	case "HTTP":
		return http1
	case "HTTPS", "GRPCS":
		return https
	case "GRPC":
		return h2c
	}
	if port == nil || port.AppProtocol == nil {
		return http1
	}
	switch *port.AppProtocol { // upstream: KEP-3726; unknown ones are HTTP
	case "kubernetes.io/h2c", "grpc":
		return h2c
	case "https", "HTTPS", "kubernetes.io/wss":
		return https
	}
	return http1
}

func findPort(svc *corev1.Service, ref networkingv1.ServiceBackendPort) *corev1.ServicePort {
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if ref.Name != "" && p.Name == ref.Name || ref.Name == "" && p.Port == ref.Number {
			return p
		}
	}
	return nil
}

// PortText returns the name of a port in quotes, or its number.
func PortText(p networkingv1.ServiceBackendPort) string {
	if p.Name != "" {
		return strconv.Quote(p.Name)
	}
	return strconv.Itoa(int(p.Number))
}

// endpointPort returns the number of the port in a slice; 0: it has none.
func endpointPort(slice *discoveryv1.EndpointSlice, name string) int32 {
	for i := range slice.Ports {
		p := &slice.Ports[i]
		if p.Port != nil && p.Name != nil && *p.Name == name || p.Port != nil && p.Name == nil && name == "" {
			return *p.Port
		}
	}
	return 0
}

// Backend distributes the requests for a target over its servers, round-robin. Its methods are safe for concurrent use,
// except that only one goroutine may call Set.
type Backend struct {
	Target
	state atomic.Pointer[backendState]
	next  atomic.Uint32 // index of the next endpoint
}

// backendState is immutable, except for the failures of its endpoints.
type backendState struct {
	Servers
	endpoints []*endpoint
}

// endpoint is one server.
type endpoint struct {
	address    string
	id         string       // in cookies, which need not show the address
	avoidUntil atomic.Int64 // UnixNano; until then, others are preferred
}

func newEndpoint(address string) *endpoint {
	sum := sha256.Sum256([]byte(address))
	return &endpoint{address: address, id: hex.EncodeToString(sum[:8])}
}

// avoidTime is how long an endpoint that refused a connection is used only if all others did so, too.
const avoidTime = 5 * time.Second

// NewBackend returns a Backend whose endpoints are not known yet.
func NewBackend(t Target) *Backend {
	b := &Backend{Target: t}
	b.state.Store(&backendState{Servers: Servers{problem: "not known yet"}})
	return b
}

// Set replaces the servers. It reports whether the problem has changed.
func (b *Backend) Set(s Servers) bool {
	old := b.state.Load()
	if old.problem == s.problem && old.protocol == s.protocol && old.external == s.external &&
		slices.Equal(old.addresses, s.addresses) {
		return false
	}
	next := &backendState{Servers: s}
	for _, address := range s.addresses {
		i, found := slices.BinarySearchFunc(old.endpoints, address,
			func(e *endpoint, a string) int { return cmp.Compare(e.address, a) })
		if found {
			next.endpoints = append(next.endpoints, old.endpoints[i])
		} else {
			next.endpoints = append(next.endpoints, newEndpoint(address))
		}
	}
	b.state.Store(next)
	return old.problem != s.problem
}

// Problem returns the reason why requests are not served; empty: they are.
func (b *Backend) Problem() string { return b.state.Load().problem }

// has reports whether the backend has an endpoint.
func (b *Backend) has(id string) bool {
	return slices.ContainsFunc(b.state.Load().endpoints, func(e *endpoint) bool { return e.id == id })
}

// pick returns the endpoint for a request, and the state that contains it; nil if all were tried. It prefers the
// endpoint with an identifier.
func (b *Backend) pick(now time.Time, id string, tried []*endpoint) (*endpoint, *backendState) {
	c := b.state.Load()
	n := uint32(len(c.endpoints))
	if n == 0 {
		return nil, c
	}
	if id != "" {
		for _, e := range c.endpoints {
			if e.id == id && len(tried) == 0 {
				return e, c
			}
		}
	}
	first := b.next.Add(1)
	var avoided *endpoint
	for i := range n {
		e := c.endpoints[(first+i)%n]
		switch {
		case slices.Contains(tried, e):
		case e.avoidUntil.Load() <= now.UnixNano():
			return e, c
		case avoided == nil:
			avoided = e
		}
	}
	return avoided, c
}
