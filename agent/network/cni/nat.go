package cni

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Registers of nftables: the first 16 bytes once as a whole (1), once as four
// words (8 to 11). Concatenated keys and values lie in consecutive words.
const (
	word0 = 1 // the same bytes as 8
	word1 = 9
	word2 = 10
)

const portMap = "hostports"

// routeLocal is RTN_LOCAL of linux/rtnetlink.h: an address of this host.
const routeLocal = 2

// nat is the table and its contents.
type nat struct {
	table                           *nftables.Table
	prerouting, output, postrouting *nftables.Chain
	ports                           *nftables.Set
}

func (n Network) nat() nat {
	table := &nftables.Table{Name: n.Table, Family: nftables.TableFamilyIPv4}
	chain := func(name string, hook *nftables.ChainHook, prio *nftables.ChainPriority) *nftables.Chain {
		return &nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: prio}
	}
	return nat{
		table:       table,
		prerouting:  chain("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
		output:      chain("output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest),
		postrouting: chain("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
		// host address (0.0.0.0: all) . protocol . port -> pod address . port
		ports: &nftables.Set{
			Table: table, Name: portMap, IsMap: true, Concatenation: true,
			ID:       1, // within the transaction; the library would use a global counter
			KeyType:  nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService),
			DataType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService),
		},
	}
}

// setUpNAT writes the static rules in one transaction. Ports in the map are kept.
func (n Network) setUpNAT() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	t := n.nat()
	conn.AddTable(t.table)
	if err := conn.AddSet(t.ports, nil); err != nil {
		return err
	}
	for _, chain := range []*nftables.Chain{t.prerouting, t.output, t.postrouting} {
		conn.AddChain(chain)
		conn.FlushChain(chain)
	}
	for _, chain := range []*nftables.Chain{t.prerouting, t.output} {
		for _, ip := range [][]expr.Any{destination(), {&expr.Immediate{Register: word0, Data: make([]byte, 4)}}} {
			conn.AddRule(&nftables.Rule{Table: t.table, Chain: chain, Exprs: join(toLocal(), ip, t.lookupPort())})
		}
	}
	for _, match := range [][]expr.Any{
		// From pods to other networks.
		join(n.fromSubnet(), n.outOfBridge(expr.CmpOpNeq)),
		// From a pod through a host port back to a pod, because replies would
		// otherwise bypass this host, and from the host's own 127.0.0.1.
		join(n.fromSubnet(), n.outOfBridge(expr.CmpOpEq), translated()),
		join(from(netip.MustParsePrefix("127.0.0.0/8")), n.outOfBridge(expr.CmpOpEq)),
	} {
		conn.AddRule(&nftables.Rule{Table: t.table, Chain: t.postrouting, Exprs: append(match, &expr.Masq{})})
	}
	return conn.Flush()
}

func (n Network) removeTables() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	remove(conn, n.nat().table)
	remove(conn, n.services())
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		remove(conn, &nftables.Table{Name: n.ServiceTable(), Family: family})
	}
	return conn.Flush()
}

// addPorts maps ports of the host to the pod at ip.
func (n Network) addPorts(ip netip.Addr, ports []portMapping) error {
	if len(ports) == 0 {
		return nil
	}
	elements := make([]nftables.SetElement, 0, len(ports))
	for _, p := range ports {
		key, err := p.key()
		if err != nil {
			return err
		}
		elements = append(elements, nftables.SetElement{Key: key, Val: append(ip.AsSlice(), word(p.ContainerPort)...)})
	}
	// So that 127.0.0.1:<hostPort> may leave through the bridge.
	if err := sysctl("net/ipv4/conf/"+n.Bridge+"/route_localnet", "1"); err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	if err := conn.SetAddElements(n.nat().ports, elements); err != nil {
		return err
	}
	return conn.Flush()
}

// removePorts removes the host ports of the pods whose addresses match.
func (n Network) removePorts(match func(ip netip.Addr) bool) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyIPv4)
	if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == n.Table }) {
		return err // without the table there are no ports
	}
	ports := n.nat().ports
	all, err := conn.GetSetElements(ports)
	if err != nil {
		return err
	}
	var gone []nftables.SetElement
	for _, e := range all {
		if len(e.Val) >= 4 && match(netip.AddrFrom4([4]byte(e.Val[:4]))) {
			gone = append(gone, e)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := conn.SetDeleteElements(ports, gone); err != nil {
		return err
	}
	return conn.Flush()
}

// key returns the map's key, in which every part fills a word.
func (p portMapping) key() ([]byte, error) {
	host := netip.IPv4Unspecified()
	if p.HostIP != "" {
		ip, err := netip.ParseAddr(p.HostIP)
		if err != nil || !ip.Unmap().Is4() {
			return nil, fmt.Errorf("host address %q is not an IPv4 address", p.HostIP)
		}
		host = ip.Unmap()
	}
	protocols := map[string]byte{"": unix.IPPROTO_TCP, "tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}
	proto, ok := protocols[strings.ToLower(p.Protocol)]
	if !ok {
		return nil, fmt.Errorf("unknown protocol %q", p.Protocol)
	}
	return join(host.AsSlice(), []byte{proto, 0, 0, 0}, word(p.HostPort)), nil
}

// word returns a port in the first half of a word.
func word(port uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, port), 0, 0) }

func join[T any](parts ...[]T) []T {
	var all []T
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func toLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: word0, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: word0, Data: binaryutil.NativeEndian.PutUint32(routeLocal)},
	}
}

// destination loads the packet's destination address.
func destination() []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: word0, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}}
}

// lookupPort completes the key after the address, and translates if the map contains
// it.
func (t nat) lookupPort() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: word1},
		&expr.Payload{DestRegister: word2, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: word0, DestRegister: word0, IsDestRegSet: true, SetName: t.ports.Name, SetID: t.ports.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: word0, RegProtoMin: word1},
	}
}

func (n Network) fromSubnet() []expr.Any { return from(n.Subnet.Masked()) }

func from(p netip.Prefix) []expr.Any { return within(p, 12) }

func (n Network) outOfBridge(op expr.CmpOp) []expr.Any {
	return through(expr.MetaKeyOIFNAME, op, n.Bridge)
}

// translated matches connections that a host port has translated (IPS_DST_NAT).
func translated() []expr.Any {
	const dstNAT = 1 << 5
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: word0},
		&expr.Bitwise{
			SourceRegister: word0, DestRegister: word0, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(dstNAT), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: word0, Data: make([]byte, 4)},
	}
}
