// Package allocate allocates cluster IPs and node ports to Services.
//
// Addresses and ports of stored Services are in use, and so are addresses of the IPAddresses that users create; the
// IPAddresses of Services only mirror the Services. The ranges are the configured ones and those of ServiceCIDRs.
// Reserve reserves addresses and ports in memory and returns a function that releases the reservation, which the caller
// calls after the write of the Service. As upstream's allocators, it chooses at random in the upper part of a range;
// the lower part, which is for requests of specific numbers, is used when the upper part is full. Processes that share
// a store do not see each other's reservations.
package allocate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultAddresses does not overlap the pod range 10.88.0.0/13. Upstream has no default; that of kubeadm, 10.96.0.0/12,
// starts at the same address. DefaultPorts is upstream's default.
const (
	DefaultAddresses = "10.96.0.0/16"
	DefaultPorts     = "30000-32767"
)

// Manager is the value of the label ipaddress.kubernetes.io/managed-by for IPAddresses of Services (upstream: the
// same).
const Manager = "ipallocator.k8s.io"

// APIServerService is the Service of the API server. It gets the first address.
const APIServerService = "kubernetes"

// minHostBits is the number of host bits of the smallest range, which has 8 addresses (upstream: the same).
const minHostBits = 3

// Config contains the ranges. Zero fields have defaults.
type Config struct {
	// Addresses has one range, or one range of each IP family. The first family is the default.
	Addresses []netip.Prefix
	Ports     utilnet.PortRange
}

// Ranges is a Config as flag values, such as "10.96.0.0/16,fd00:96::/108" and "30000-32767".
type Ranges struct{ Addresses, Ports string }

// Flags adds kube-apiserver's flags.
func (r *Ranges) Flags(f *pflag.FlagSet) {
	f.StringVar(&r.Addresses, "service-cluster-ip-range", DefaultAddresses,
		"CIDR range of the cluster IPs of Services; with a second one of the other IP family, separated by a comma, "+
			"Services can be dual-stack.")
	f.StringVar(&r.Ports, "service-node-port-range", DefaultPorts,
		"Port range of Services of type NodePort, both ends included.")
}

// Parse parses the ranges. Its error names the flag.
func (r Ranges) Parse() (Config, error) {
	addresses, ports := r.Addresses, r.Ports
	var cfg Config
	for text := range strings.SplitSeq(addresses, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return cfg, fmt.Errorf("--service-cluster-ip-range: %w", err)
		}
		if prefix != prefix.Masked() || prefix.Addr().BitLen()-prefix.Bits() < minHostBits {
			return cfg, fmt.Errorf("--service-cluster-ip-range: %s is not a range of at least 8 addresses; did you mean %s?",
				prefix, prefix.Masked())
		}
		cfg.Addresses = append(cfg.Addresses, prefix)
	}
	if n := len(cfg.Addresses); n > 2 || n == 2 && cfg.Addresses[0].Addr().Is4() == cfg.Addresses[1].Addr().Is4() {
		return cfg, fmt.Errorf("--service-cluster-ip-range: %q must be one range, or one of IPv4 and one of IPv6", addresses)
	}
	if err := cfg.Ports.Set(ports); err != nil {
		return cfg, fmt.Errorf("--service-node-port-range: %w", err)
	}
	if cfg.Ports.Size == 0 || cfg.Ports.Base == 0 {
		return cfg, fmt.Errorf("--service-node-port-range: %q contains no ports", ports)
	}
	return cfg, nil
}

// Complete returns the config with its defaults.
func (c Config) Complete() Config {
	if len(c.Addresses) == 0 {
		c.Addresses = []netip.Prefix{netip.MustParsePrefix(DefaultAddresses)}
	}
	if c.Ports.Size == 0 {
		c.Ports = *utilnet.ParsePortRangeOrDie(DefaultPorts)
	}
	return c
}

// APIServerAddress returns the first address, that of the API server's Service.
func (c Config) APIServerAddress() netip.Addr { return c.Complete().Addresses[0].Addr().Next() }

// Stored reads the stored objects that allocations depend on. Services is required.
type Stored struct {
	Services func(ctx context.Context) ([]*corev1.Service, error)
	// Ranges returns the ranges besides the configured ones; nil: none.
	Ranges func(ctx context.Context) ([]netip.Prefix, error)
	// UserAddresses returns the addresses that users reserve with IPAddresses; nil: none.
	UserAddresses func(ctx context.Context) ([]netip.Addr, error)
}

// Services allocates addresses and ports. Its methods are safe for concurrent use.
type Services struct {
	cfg    Config
	stored Stored

	mu       sync.Mutex // guards the fields below, and serializes allocations
	reserved map[*reservation]struct{}
	used     usage
}

// New returns Services that allocate from cfg what stored does not use.
func New(cfg Config, stored Stored) *Services {
	return &Services{cfg: cfg.Complete(), stored: stored, reserved: map[*reservation]struct{}{}, used: newUsage()}
}

// Reserve sets next's cluster IPs and node ports. cur is the stored Service, nil for a creation. The error is an API
// error. release is never nil.
func (s *Services) Reserve(ctx context.Context, next, cur *corev1.Service) (release func(), err error) {
	if errs := s.families(next, cur); len(errs) > 0 {
		return func() {}, invalid(next, errs)
	}
	c := newReservation(next, cur)
	if !c.needsAllocation(&next.Spec) {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.collectUsed(ctx, c); err != nil {
		return func() {}, err
	}
	if err := s.addresses(c, next); err != nil {
		return func() {}, err
	}
	if err := s.ports(c, next); err != nil {
		return func() {}, err
	}
	s.reserved[c] = struct{}{}
	return func() { s.release(c) }, nil
}

func (s *Services) release(c *reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, c)
}

// collectUsed collects the ranges, the addresses that users reserve, and the addresses and ports of other Services,
// stored or reserved.
func (s *Services) collectUsed(ctx context.Context, c *reservation) error {
	services, err := s.stored.Services(ctx)
	if err != nil {
		return err
	}
	c.ranges = s.cfg.Addresses
	if s.stored.Ranges != nil {
		more, err := s.stored.Ranges(ctx)
		if err != nil {
			return err
		}
		c.ranges = slices.Concat(c.ranges, more)
	}
	if s.stored.UserAddresses != nil {
		taken, err := s.stored.UserAddresses(ctx)
		if err != nil {
			return err
		}
		for _, ip := range taken {
			c.usedIPs[ip] = true
		}
	}
	s.used.update(services)
	c.stored = &s.used
	if !c.created {
		if i := slices.IndexFunc(services, func(svc *corev1.Service) bool { return svc.UID == c.owner.UID }); i >= 0 {
			c.previous.add(&services[i].Spec, 1)
		}
	}
	for other := range s.reserved {
		if other.owner.UID == c.owner.UID {
			continue
		}
		for _, ip := range other.ips {
			c.usedIPs[ip] = true
		}
		for _, port := range other.ports {
			c.usedPorts[port] = true
		}
	}
	if c.owner.Name != APIServerService || c.owner.Namespace != metav1.NamespaceDefault {
		c.usedIPs[s.cfg.APIServerAddress()] = true
	}
	return nil
}

func invalid(svc *corev1.Service, errs field.ErrorList) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, errs)
}
