package rules

import (
	"encoding/binary"
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

const portMap = "hostports"

// Port is one hostPort, in the format of CNI's capability portMappings.
type Port struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"` // tcp, udp or sctp
	// empty: all addresses, of all families of the pod; 0.0.0.0 and ::, all of one
	HostIP string `json:"hostIP,omitempty"`
}

// AddPorts maps ports of the host to the pod with the addresses, also for clients that already send to them.
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
			elements = append(elements, nftables.SetElement{Key: key, Val: append(ip.AsSlice(), word(p.ContainerPort)...)})
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
	t := r.nat(familyOf(ip))
	loop := []nftables.SetElement{{Key: join(ip.AsSlice(), ip.AsSlice())}}
	err := nft.Do(func(conn *nftables.Conn) error {
		if err := errors.Join(conn.SetAddElements(t.ports, elements), conn.SetAddElements(t.loops, loop)); err != nil {
			return err
		}
		return conn.Flush()
	})
	if errors.Is(err, unix.EEXIST) { // for instance one that was deleted by force and still ends
		return fmt.Errorf("another pod still has one of the ports: %w", err)
	}
	return err
}

// RemovePorts removes the host ports of the pods whose addresses match.
func (r Rules) RemovePorts(match func(ip netip.Addr) bool) error {
	var errs []error
	for _, f := range []family{ipv4, ipv6} {
		errs = append(errs, nft.Do(func(conn *nftables.Conn) error { return r.removePorts(conn, f, match) }))
	}
	if err := errors.Join(errs...); !errors.Is(err, unix.EPROTONOSUPPORT) {
		return err
	}
	return nil // a kernel without netfilter has no ports
}

func (r Rules) removePorts(conn *nftables.Conn, f family, match func(ip netip.Addr) bool) error {
	tables, err := conn.ListTablesOfFamily(f.table)
	if nft.Missing(err) {
		return nil
	}
	if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == r.Table }) {
		return err // without the table there are no ports
	}
	t := r.nat(f)
	var errs []error
	for _, set := range []*nftables.Set{t.ports, t.loops} {
		errs = append(errs, f.drop(conn, set, match))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return conn.Flush()
}

// drop deletes the elements of the pods whose addresses match: the address begins the value, or without one the key.
func (f family) drop(conn *nftables.Conn, set *nftables.Set, match func(ip netip.Addr) bool) error {
	all, err := conn.GetSetElements(set)
	if errors.Is(err, unix.ENOENT) {
		return nil // an earlier version without it created the table
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
		if len(pod) < int(f.size) {
			continue
		}
		if ip, _ := netip.AddrFromSlice(pod[:f.size]); match(ip) {
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

// key returns the key in the map of a family, in which every part fills whole words;
// nil: the port is not one of the family.
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
	return join(host.AsSlice(), []byte{proto, 0, 0, 0}, word(p.HostPort)), nil
}

// word returns a port in the first half of a word.
func word(port uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, port), 0, 0) }
