package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monopod/agent/network/nft"
)

// Port is one hostPort, in the format of CNI's capability portMappings.
type Port struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"` // tcp, udp or sctp
	// HostIP is an address of the host. Empty: all addresses; 0.0.0.0 or ::, all of one family.
	HostIP string `json:"hostIP,omitempty"`
}

// AddPorts maps ports of the host to the pod with the addresses. It removes conntrack flows that lead elsewhere.
func (r Rules) AddPorts(pod []netip.Addr, ports []Port) error {
	for _, p := range ports {
		if host, err := p.host(); err != nil {
			return err
		} else if host.IsValid() && !slices.ContainsFunc(pod, func(ip netip.Addr) bool { return ip.Is4() == host.Is4() }) {
			return fmt.Errorf("the pod has no address of the family of the host address %s", p.HostIP)
		}
	}
	var errs []error
	for _, ip := range pod {
		errs = append(errs, r.addPorts(ip, ports))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return forgetFlows(pod, ports)
}

func (r Rules) addPorts(ip netip.Addr, ports []Port) error {
	var elements []nftables.SetElement
	for _, p := range ports {
		key, err := p.key(ip.Is4())
		if err != nil {
			return err
		}
		if key != nil {
			elements = append(elements,
				nftables.SetElement{Key: key, Val: append(ip.AsSlice(), nft.PortWord(p.ContainerPort)...)})
		}
	}
	if len(elements) == 0 {
		return nil
	}
	if ip.Is4() { // so that 127.0.0.1:<hostPort> may leave through the bridge
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+r.Bridge+"/route_localnet", []byte("1"), 0o644); err != nil {
			return err
		}
	}
	t := r.nat(familyOf(ip.Is4()))
	loop := []nftables.SetElement{{Key: slices.Concat(ip.AsSlice(), ip.AsSlice())}}
	err := nft.Do(func(conn *nftables.Conn) error {
		if err := errors.Join(conn.SetAddElements(t.ports, elements), conn.SetAddElements(t.loops, loop)); err != nil {
			return err
		}
		return conn.Flush()
	})
	if errors.Is(err, unix.EEXIST) { // for instance a pod that was deleted by force and still terminates
		return fmt.Errorf("another pod still uses one of the host ports: %w", err)
	}
	return err
}

// RemovePorts removes the host ports of the pods whose addresses match.
func (r Rules) RemovePorts(match func(ip netip.Addr) bool) error {
	var errs []error
	for _, is4 := range []bool{true, false} {
		errs = append(errs,
			nft.Do(func(conn *nftables.Conn) error { return r.removePorts(conn, familyOf(is4), match) }))
	}
	if err := errors.Join(errs...); !errors.Is(err, unix.EPROTONOSUPPORT) {
		return err
	}
	return nil // a kernel without netfilter has no ports
}

func (r Rules) removePorts(conn *nftables.Conn, f nft.Family, match func(ip netip.Addr) bool) error {
	tables, err := conn.ListTablesOfFamily(f.Table)
	if nft.Missing(err) {
		return nil
	}
	if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == r.Table }) {
		return err // without the table there are no ports
	}
	t := r.nat(f)
	var errs []error
	for _, set := range []*nftables.Set{t.ports, t.loops} {
		errs = append(errs, removeElements(conn, set, int(f.Size), match))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return conn.Flush()
}

// removeElements deletes the elements of the pods whose addresses match: the address is the beginning of the value, or
// in a set that of the key.
func removeElements(conn *nftables.Conn, set *nftables.Set, size int, match func(ip netip.Addr) bool) error {
	all, err := conn.GetSetElements(set)
	if errors.Is(err, unix.ENOENT) {
		return nil // an earlier version created the table without the set
	}
	if err != nil {
		return err
	}
	var gone []nftables.SetElement
	for _, e := range all {
		pod := e.Key
		if set.IsMap {
			pod = e.Val
		}
		if len(pod) < size {
			continue
		}
		if ip, _ := netip.AddrFromSlice(pod[:size]); match(ip) {
			gone = append(gone, e)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return conn.SetDeleteElements(set, gone)
}

// host returns the host's address; invalid: all.
func (p Port) host() (netip.Addr, error) {
	if p.HostIP == "" {
		return netip.Addr{}, nil
	}
	ip, err := netip.ParseAddr(p.HostIP)
	if err != nil {
		return ip, fmt.Errorf("host address %q: %w", p.HostIP, err)
	}
	return ip.Unmap(), nil
}

// key returns the key in the map of a family, in which every part fills whole words; nil: the host address is of the
// other family.
func (p Port) key(is4 bool) ([]byte, error) {
	host, err := p.host()
	if err != nil {
		return nil, err
	}
	protocols := map[string]byte{"": unix.IPPROTO_TCP, "tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP,
		"sctp": unix.IPPROTO_SCTP}
	proto, ok := protocols[strings.ToLower(p.Protocol)]
	if !ok {
		return nil, fmt.Errorf("unknown protocol %q", p.Protocol)
	}
	switch {
	case !host.IsValid() && is4:
		host = netip.IPv4Unspecified()
	case !host.IsValid():
		host = netip.IPv6Unspecified()
	case host.Is4() != is4:
		return nil, nil
	}
	return slices.Concat(host.AsSlice(), []byte{proto, 0, 0, 0}, []byte(nft.PortWord(p.HostPort))), nil
}
