// Package allocate gives Services what the cluster has only one of: addresses out
// of a range, and ports of the nodes.
//
// What is in use is what the stored Services say; nothing else is kept on disk.
// Between the choice and the write a reservation in memory stands for it: Claim
// returns a function that ends it, to be called when the write is over, whatever
// its outcome. Choices follow upstream's allocators: at random in the upper part
// of a range, and in the lower part, which is meant for those that are asked for
// by number, only when the upper is full. Several processes that share a store
// do not see each other's reservations.
package allocate

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/service"
)

// DefaultAddresses lie beside the pods' 10.88.0.0/13 (upstream has no default
// that holds everywhere; kubeadm's 10.96.0.0/12 begins here too), DefaultPorts are
// upstream's.
const (
	DefaultAddresses = "10.96.0.0/16"
	DefaultPorts     = "30000-32767"
)

// TheService is the API server's own Service, which has the first address.
const TheService = "kubernetes"

// minHostBits make the smallest range: 8 addresses (as upstream wants).
const minHostBits = 3

// Config says what there is to give. The zero value is the two defaults.
type Config struct {
	// Addresses are one range, or one of each family; the first is the default one.
	Addresses []netip.Prefix
	Ports     utilnet.PortRange
}

// Ranges are a Config as flags give it: "10.96.0.0/16,fd00:96::/108", "30000-32767".
type Ranges struct{ Addresses, Ports string }

// Flags are kube-apiserver's.
func (r *Ranges) Flags(f *pflag.FlagSet) {
	f.StringVar(&r.Addresses, "service-cluster-ip-range", DefaultAddresses, "CIDR range of the cluster IPs of Services; with a second one of the other IP family, separated by a comma, Services can be dual-stack.")
	f.StringVar(&r.Ports, "service-node-port-range", DefaultPorts, "Port range of Services of type NodePort, both ends included.")
}

// Parse reads the ranges; the error names the flag.
func (r Ranges) Parse() (Config, error) {
	addresses, ports := r.Addresses, r.Ports
	var cfg Config
	for text := range strings.SplitSeq(addresses, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return cfg, fmt.Errorf("--service-cluster-ip-range: %w", err)
		}
		if prefix != prefix.Masked() || prefix.Addr().BitLen()-prefix.Bits() < minHostBits {
			return cfg, fmt.Errorf("--service-cluster-ip-range: %s is no range of at least 8 addresses; %s?", prefix, prefix.Masked())
		}
		cfg.Addresses = append(cfg.Addresses, prefix)
	}
	if n := len(cfg.Addresses); n > 2 || n == 2 && cfg.Addresses[0].Addr().Is4() == cfg.Addresses[1].Addr().Is4() {
		return cfg, fmt.Errorf("--service-cluster-ip-range: %q: one range, or one of IPv4 and one of IPv6", addresses)
	}
	if err := cfg.Ports.Set(ports); err != nil {
		return cfg, fmt.Errorf("--service-node-port-range: %w", err)
	}
	if cfg.Ports.Size == 0 || cfg.Ports.Base == 0 {
		return cfg, fmt.Errorf("--service-node-port-range: %q: names no ports", ports)
	}
	return cfg, nil
}

// Complete returns the config with what it leaves out.
func (c Config) Complete() Config {
	if len(c.Addresses) == 0 {
		c.Addresses = []netip.Prefix{netip.MustParsePrefix(DefaultAddresses)}
	}
	if c.Ports.Size == 0 {
		c.Ports = *utilnet.ParsePortRangeOrDie(DefaultPorts)
	}
	return c
}

// First is the address of the API server's own Service.
func (c Config) First() netip.Addr { return c.Complete().Addresses[0].Addr().Next() }

// Services allocates. Its methods may be called at the same time.
type Services struct {
	cfg  Config
	list func(ctx context.Context) ([]*corev1.Service, error)

	mu       sync.Mutex // guards reserved, and that nothing is chosen twice
	reserved map[*claim]struct{}
}

// New allocates from cfg what no Service in list has.
func New(cfg Config, list func(ctx context.Context) ([]*corev1.Service, error)) *Services {
	return &Services{cfg: cfg.Complete(), list: list, reserved: map[*claim]struct{}{}}
}

// Claim fills in next's addresses and node ports. cur is what is stored now, nil
// for a creation. The error is an API error; release is never nil.
func (s *Services) Claim(ctx context.Context, next, cur *corev1.Service) (release func(), err error) {
	if errs := s.families(next, cur); len(errs) > 0 {
		return func() {}, invalid(next, errs)
	}
	c := newClaim(next, cur)
	if !c.wants(&next.Spec) {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.seeUsed(ctx, c); err != nil {
		return func() {}, err
	}
	if err := s.fill(c, next); err != nil {
		return func() {}, err
	}
	s.reserved[c] = struct{}{}
	return func() { s.release(c) }, nil
}

func (s *Services) release(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, c)
}

func (s *Services) fill(c *claim, next *corev1.Service) error {
	if err := s.addresses(c, next); err != nil {
		return err
	}
	return s.ports(c, next)
}

// seeUsed finds what others have and what is on its way to them.
func (s *Services) seeUsed(ctx context.Context, c *claim) error {
	services, err := s.list(ctx)
	if err != nil {
		return err
	}
	for _, svc := range services {
		if svc.UID != c.owner.UID {
			see(&svc.Spec, c.usedIPs, c.usedPorts)
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
	if c.owner.Name != TheService || c.owner.Namespace != metav1.NamespaceDefault {
		c.usedIPs[s.cfg.First()] = true
	}
	return nil
}

// see notes what a Service has.
func see(spec *corev1.ServiceSpec, ips map[netip.Addr]bool, ports map[int32]bool) {
	for _, text := range spec.ClusterIPs {
		if ip, err := parse(text); err == nil {
			ips[ip] = true
		}
	}
	if service.NeedsNodePorts(spec) {
		for _, p := range spec.Ports {
			ports[p.NodePort] = true
		}
	}
	if spec.HealthCheckNodePort != 0 {
		ports[spec.HealthCheckNodePort] = true
	}
}

func invalid(svc *corev1.Service, errs field.ErrorList) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, errs)
}

// First is the address of the API server's own Service.
func (s *Services) First() netip.Addr { return s.cfg.First() }
