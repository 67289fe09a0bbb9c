package allocate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"monopod/apiserver/registry/service"
)

// Upstream's errors (ipallocator, portallocator): clients match on them.
var (
	errFull       = errors.New("range is full")
	errTakenIP    = errors.New("provided IP is already allocated")
	errOutOfRange = errors.New("the provided network does not match the current range")
	errTakenPort  = errors.New("provided port is already allocated")
)

// reservation contains the addresses and ports that one write allocates.
type reservation struct {
	owner struct {
		types.NamespacedName
		types.UID
	}
	created bool

	// Addresses and ports of the stored Service, which it may keep.
	currentIPs   map[netip.Addr]bool
	currentPorts map[int32]bool

	ranges []netip.Prefix
	// Addresses and ports in use: by the stored Services except previous, by reservations and by users.
	stored    *usage
	previous  usage
	usedIPs   map[netip.Addr]bool
	usedPorts map[int32]bool

	ips   []netip.Addr
	ports []int32
}

func newReservation(next, cur *corev1.Service) *reservation {
	c := &reservation{
		created:    cur == nil,
		currentIPs: map[netip.Addr]bool{}, currentPorts: map[int32]bool{},
		usedIPs: map[netip.Addr]bool{}, usedPorts: map[int32]bool{}, previous: newUsage(),
	}
	c.owner.NamespacedName = types.NamespacedName{Namespace: next.Namespace, Name: next.Name}
	c.owner.UID = next.UID
	if cur != nil {
		current := newUsage()
		current.add(&cur.Spec, 1)
		for ip := range current.ips {
			c.currentIPs[ip] = true
		}
		for port := range current.ports {
			c.currentPorts[port] = port != 0
		}
	}
	return c
}

// ipUsed reports whether another Service or a user has the address.
func (c *reservation) ipUsed(ip netip.Addr) bool {
	return c.usedIPs[ip] || c.stored.ips[ip] > c.previous.ips[ip]
}

// portUsed reports whether another Service has the node port.
func (c *reservation) portUsed(port int32) bool {
	return c.usedPorts[port] || c.stored.ports[port] > c.previous.ports[port]
}

// needsAllocation reports whether the Service lacks an address or a port that it needs.
func (c *reservation) needsAllocation(spec *corev1.ServiceSpec) bool {
	if needsIPs(spec) {
		if len(spec.ClusterIPs) < len(spec.IPFamilies) {
			return true
		}
		for _, text := range spec.ClusterIPs {
			if ip, err := parse(text); err != nil || !c.currentIPs[ip] {
				return true
			}
		}
	}
	if service.NeedsHealthCheck(spec) && !c.currentPorts[spec.HealthCheckNodePort] {
		return true
	}
	return service.NeedsNodePorts(spec) && slices.ContainsFunc(spec.Ports, func(p corev1.ServicePort) bool {
		return !c.currentPorts[p.NodePort] && (p.NodePort != 0 || allocatesNodePorts(spec))
	})
}

func needsIPs(spec *corev1.ServiceSpec) bool {
	return service.NeedsAddress(spec) && !service.Headless(spec)
}

// allocatesNodePorts reports whether the Service needs node ports: allocateLoadBalancerNodePorts may disable them.
func allocatesNodePorts(spec *corev1.ServiceSpec) bool {
	give := spec.AllocateLoadBalancerNodePorts
	return spec.Type == corev1.ServiceTypeNodePort ||
		spec.Type == corev1.ServiceTypeLoadBalancer && (give == nil || *give)
}

func parse(text string) (netip.Addr, error) {
	ip := netutils.ParseIPSloppy(text) // as validation does
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return addr, fmt.Errorf("%q is not an IP address", text)
	}
	return addr.Unmap(), nil
}

// addresses allocates one address for each family of the Service.
func (s *Services) addresses(c *reservation, svc *corev1.Service) error {
	spec := &svc.Spec
	if !needsIPs(spec) {
		return nil
	}
	for i, family := range spec.IPFamilies {
		if i == len(spec.ClusterIPs) {
			ip, err := c.takeFreeIP(family)
			if err != nil {
				return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP: %w", err))
			}
			spec.ClusterIPs = append(spec.ClusterIPs, ip.String())
			continue
		}
		if err := c.takeRequestedIP(family, spec.ClusterIPs[i]); err != nil {
			return invalid(svc, field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), spec.ClusterIPs,
				fmt.Sprintf("failed to allocate IP %s: %v", spec.ClusterIPs[i], err))})
		}
	}
	if len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	return nil
}

func (s *Services) rangeOf(family corev1.IPFamily) netip.Prefix {
	for _, prefix := range s.cfg.Addresses {
		if familyOf(prefix) == family {
			return prefix
		}
	}
	return netip.Prefix{}
}

func familyOf(prefix netip.Prefix) corev1.IPFamily {
	if prefix.Addr().Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func (c *reservation) takeRequestedIP(family corev1.IPFamily, text string) error {
	ip, err := parse(text)
	switch {
	case err != nil:
		return err
	case c.currentIPs[ip]:
		return nil
	case !slices.ContainsFunc(c.ranges,
		func(from netip.Prefix) bool { return familyOf(from) == family && usable(from, ip) }):
		return errOutOfRange
	case c.ipUsed(ip):
		return errTakenIP
	}
	c.takeIP(ip)
	return nil
}

func (c *reservation) takeIP(ip netip.Addr) {
	c.ips, c.usedIPs[ip] = append(c.ips, ip), true
}

// usable reports whether an address can be allocated: not the network address, which is the first of a range, nor the
// broadcast address, which is the last of an IPv4 range.
func usable(from netip.Prefix, ip netip.Addr) bool {
	if !from.Contains(ip) || ip == from.Addr() {
		return false
	}
	return !ip.Is4() || from.Contains(ip.Next())
}

// takeFreeIP allocates a free address from the first range of the family that has one.
func (c *reservation) takeFreeIP(family corev1.IPFamily) (netip.Addr, error) {
	for _, from := range c.ranges {
		if familyOf(from) != family {
			continue
		}
		size := uint64(1) << min(from.Addr().BitLen()-from.Bits(), 32) // a larger range is not used in full
		offset, found := randomFree(size, lowerBandSize(size, 16, 256), func(i uint64) bool {
			ip := addressAt(from, i)
			return usable(from, ip) && !c.ipUsed(ip) && !c.currentIPs[ip]
		})
		if found {
			ip := addressAt(from, offset)
			c.takeIP(ip)
			return ip, nil
		}
	}
	return netip.Addr{}, errFull
}

// addressAt returns the i-th address of a range.
func addressAt(prefix netip.Prefix, i uint64) netip.Addr {
	raw := prefix.Addr().AsSlice()
	for b := len(raw) - 1; i > 0 && b >= 0; b-- {
		i += uint64(raw[b])
		raw[b] = byte(i)
		i >>= 8
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}

// lowerBandSize returns the size of the lower part of a range: a share of the range, at least 16 (upstream:
// calculateRangeOffset).
func lowerBandSize(size, share, most uint64) uint64 {
	if size <= 16 {
		return 0
	}
	return min(max(size/share, 16), most)
}

// randomFree returns a random free place from lower up to size, else below lower.
func randomFree(size, lower uint64, free func(uint64) bool) (uint64, bool) {
	for _, part := range [][2]uint64{{lower, size}, {0, lower}} {
		count := part[1] - part[0]
		if count == 0 {
			continue
		}
		start := rand.Uint64N(count)
		for i := range count {
			if place := part[0] + (start+i)%count; free(place) {
				return place, true
			}
		}
	}
	return 0, false
}

// ports allocates the node ports.
func (s *Services) ports(c *reservation, svc *corev1.Service) error {
	spec := &svc.Spec
	if service.NeedsNodePorts(spec) {
		if err := s.nodePorts(c, svc); err != nil {
			return err
		}
	}
	if !service.NeedsHealthCheck(spec) {
		return nil
	}
	path := field.NewPath("spec", "healthCheckNodePort")
	return s.port(c, svc, path, &spec.HealthCheckNodePort)
}

// nodePorts allocates node ports. TCP and UDP on the same port of the Service share a node port.
func (s *Services) nodePorts(c *reservation, svc *corev1.Service) error {
	spec := &svc.Spec
	byPort := map[int32]int32{} // node ports by port of the Service
	for _, p := range slices.Backward(spec.Ports) {
		if p.NodePort != 0 {
			byPort[p.Port] = p.NodePort
		}
	}
	done := map[int32]int32{}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if p.NodePort == 0 && !allocatesNodePorts(spec) {
			continue
		}
		if p.NodePort == 0 {
			p.NodePort = byPort[p.Port]
		}
		if p.NodePort != 0 && done[p.Port] == p.NodePort {
			continue
		}
		if err := s.port(c, svc, field.NewPath("spec", "ports").Index(i).Child("nodePort"), &p.NodePort); err != nil {
			return err
		}
		byPort[p.Port], done[p.Port] = p.NodePort, p.NodePort
	}
	return nil
}

// port allocates the requested node port, or a free one if *port is 0.
func (s *Services) port(c *reservation, svc *corev1.Service, path *field.Path, port *int32) error {
	if *port == 0 {
		first, size := int32(s.cfg.Ports.Base), uint64(s.cfg.Ports.Size)
		place, found := randomFree(size, lowerBandSize(size, 32, 128), func(i uint64) bool {
			port := first + int32(i)
			return !c.portUsed(port) && !c.currentPorts[port]
		})
		if !found {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", errFull))
		}
		*port = first + int32(place)
		c.takePort(*port)
		return nil
	}
	if err := c.takeRequestedPort(s, *port); err != nil {
		return invalid(svc, field.ErrorList{field.Invalid(path, *port, err.Error())})
	}
	return nil
}

func (c *reservation) takeRequestedPort(s *Services, port int32) error {
	switch {
	case c.currentPorts[port]:
		return nil
	case slices.Contains(c.ports, port) && !c.created:
		return nil // validation checks the protocols
	case !s.cfg.Ports.Contains(int(port)):
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", s.cfg.Ports.String())
	case c.portUsed(port):
		return errTakenPort
	}
	c.takePort(port)
	return nil
}

func (c *reservation) takePort(port int32) {
	c.ports, c.usedPorts[port] = append(c.ports, port), true
}
