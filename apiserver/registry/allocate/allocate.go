// Package allocate allocates cluster IPs and node ports to Services.
//
// The stored Services say what is in use, and the IPAddresses that users create; those of Services only show
// what is stored. The ranges are the configured ones and those of ServiceCIDRs. Claim reserves its choice in
// memory until the write of the Service is over and returns a function that releases the
// reservation. Choices follow upstream's allocators: at random in the upper part of a range; the
// lower part, for requests with a fixed number, only if the upper one is full. Processes that
// share a store do not see each other's reservations.
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

// DefaultAddresses is outside the pods' 10.88.0.0/13 (upstream has no general default; kubeadm's
// 10.96.0.0/12 begins here, too). DefaultPorts is upstream's.
const (
	DefaultAddresses = "10.96.0.0/16"
	DefaultPorts     = "30000-32767"
)

// Manager is the value of the label ipaddress.kubernetes.io/managed-by of the IPAddresses of Services (upstream's).
const Manager = "ipallocator.k8s.io"

// APIServerService is the Service of the API server, which has the first address.
const APIServerService = "kubernetes"

// minHostBits is the size of the smallest range: 8 addresses (upstream's).
const minHostBits = 3

// Config contains the ranges. The zero value has the defaults.
type Config struct {
	// Addresses is one range, or one of each family; the first is the default family.
	Addresses []netip.Prefix
	Ports     utilnet.PortRange
}

// Ranges is a Config as flags: "10.96.0.0/16,fd00:96::/108", "30000-32767".
type Ranges struct{ Addresses, Ports string }

// Flags adds kube-apiserver's flags.
func (r *Ranges) Flags(f *pflag.FlagSet) {
	f.StringVar(&r.Addresses, "service-cluster-ip-range", DefaultAddresses,
		"CIDR range of the cluster IPs of Services; with a second one of the other IP family, separated by a comma, Services can be dual-stack.")
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

// Complete returns the config with defaults.
func (c Config) Complete() Config {
	if len(c.Addresses) == 0 {
		c.Addresses = []netip.Prefix{netip.MustParsePrefix(DefaultAddresses)}
	}
	if c.Ports.Size == 0 {
		c.Ports = *utilnet.ParsePortRangeOrDie(DefaultPorts)
	}
	return c
}

// First returns the address of the API server's Service.
func (c Config) First() netip.Addr { return c.Complete().Addresses[0].Addr().Next() }

// Stored are the stored objects that allocations depend on. Services is required.
type Stored struct {
	Services func(ctx context.Context) ([]*corev1.Service, error)
	// Ranges returns the ranges besides the configured ones; nil: none.
	Ranges func(ctx context.Context) ([]netip.Prefix, error)
	// Taken returns the addresses that no Service has and that are not allocated; nil: none.
	Taken func(ctx context.Context) ([]netip.Addr, error)
}

// Services allocates. Its methods are safe for concurrent use.
type Services struct {
	cfg    Config
	stored Stored

	mu       sync.Mutex // guards what follows, and makes choices one after the other
	reserved map[*reservation]struct{}
	used     usage
}

// New returns Services that allocate from cfg what is not in use.
func New(cfg Config, stored Stored) *Services {
	return &Services{cfg: cfg.Complete(), stored: stored, reserved: map[*reservation]struct{}{}, used: newUsage()}
}

// Reserve sets next's cluster IPs and node ports. cur is the stored Service, nil for a creation. The
// error is an API error; release is never nil.
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
	if err := s.fill(c, next); err != nil {
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

func (s *Services) fill(c *reservation, next *corev1.Service) error {
	if err := s.addresses(c, next); err != nil {
		return err
	}
	return s.ports(c, next)
}

// collectUsed collects what other Services have or have reserved.
func (s *Services) collectUsed(ctx context.Context, c *reservation) error {
	services, err := s.stored.Services(ctx)
	if err != nil {
		return err
	}
	if err := s.collectRanges(ctx, c); err != nil {
		return err
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
		c.usedIPs[s.cfg.First()] = true
	}
	return nil
}

// collectRanges collects the ranges, and what is taken of them by others than Services.
func (s *Services) collectRanges(ctx context.Context, c *reservation) error {
	c.ranges = s.cfg.Addresses
	if s.stored.Ranges != nil {
		more, err := s.stored.Ranges(ctx)
		if err != nil {
			return err
		}
		c.ranges = slices.Concat(c.ranges, more)
	}
	if s.stored.Taken == nil {
		return nil
	}
	taken, err := s.stored.Taken(ctx)
	for _, ip := range taken {
		c.usedIPs[ip] = true
	}
	return err
}

func invalid(svc *corev1.Service, errs field.ErrorList) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, errs)
}

// First returns the address of the API server's Service.
func (s *Services) First() netip.Addr { return s.cfg.First() }
