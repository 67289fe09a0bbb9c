// Package rules writes the static nftables rules of a pod network, and its host ports.
//
//   - ports.go: ports of the host that lead to pods
//   - nat.go: pods reach other networks by the host's addresses
//   - services.go: addresses of Services that nothing serves are rejected
//
// A table of an IP family translates addresses; one of the family inet rejects. All
// have the same name.
//
//   - isolation.go: keeps the pods on a bridge from reaching each other at the link layer: each reaches only the node,
//     which routes between them
package rules

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"monopod/agent/network/nft"
)

// Rules are those of one network.
type Rules struct {
	Table    string         // name of the tables
	Bridge   string         // link of the pods
	Subnets  []netip.Prefix // of the pods: one or two, of different families
	Services []netip.Prefix // addresses there that nothing serves are rejected
}

// SetUp writes all rules; host ports are kept. It logs what the kernel cannot do. taken
// are the subnets to which other links of the host lead.
func (r Rules) SetUp(taken []netip.Prefix, log *zap.Logger) {
	for _, subnet := range r.Subnets {
		if err := r.setUpNAT(subnet); err != nil {
			log.Warn("cannot set up address translation: pods can communicate only with this host",
				zap.Stringer("subnet", subnet), zap.Error(err))
		}
	}
	if err := r.setUpServices(taken, log); err != nil {
		log.Warn("cannot reject connections to Services without endpoints: they may be routed out of this host",
			zap.Error(err))
	}
}

// Remove removes the tables.
func (r Rules) Remove() error {
	return nft.RemoveTables(r.Table, nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet)
}

// Count returns the number of rules in the tables of the name, of all families.
func (r Rules) Count() (sum int, err error) {
	err = nft.Do(func(conn *nftables.Conn) error {
		all, err := conn.ListTables()
		if err != nil {
			return fmt.Errorf("list nftables tables: %w", err)
		}
		for _, table := range all {
			if table.Name != r.Table {
				continue
			}
			for _, chain := range []string{"prerouting", "forward", "output", "postrouting", "reject"} {
				found, err := conn.GetRules(table, &nftables.Chain{Name: chain, Table: table})
				if err != nil {
					return fmt.Errorf("list rules of %s: %w", table.Name, err)
				}
				sum += len(found)
			}
		}
		return nil
	})
	return sum, err
}

// Registers of nftables: the first 16 bytes once as a whole (1), once as four words
// (8 to 11); the next words follow. Concatenated keys and values lie in consecutive
// words.
const (
	word0      = 1 // the same bytes as firstWord
	firstWord  = unix.NFT_REG32_00
	bytesAWord = 4
)

// family is what differs between IPv4 and IPv6.
type family struct {
	table    nftables.TableFamily
	proto    byte   // NFPROTO
	size     uint32 // of an address
	source   uint32 // offset of the source address in the header; the destination follows it
	address  nftables.SetDatatype
	loopback netip.Prefix
}

var (
	ipv4 = family{nftables.TableFamilyIPv4, unix.NFPROTO_IPV4, 4, 12, nftables.TypeIPAddr,
		netip.MustParsePrefix("127.0.0.0/8")}
	ipv6 = family{nftables.TableFamilyIPv6, unix.NFPROTO_IPV6, 16, 8, nftables.TypeIP6Addr,
		netip.MustParsePrefix("::1/128")}
)

func familyOf(ip netip.Addr) family {
	if ip.Is4() {
		return ipv4
	}
	return ipv6
}

// after is the register after an address that begins at word0.
func (f family) after() uint32 { return firstWord + f.size/bytesAWord }

func (f family) from(p netip.Prefix) []expr.Any { return within(p, f.source) }

// destination loads the packet's destination address.
func (f family) destination() []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: word0, Base: expr.PayloadBaseNetworkHeader, Offset: f.source + f.size,
		Len: f.size}}
}

// within matches an address at the offset of the network header.
func within(p netip.Prefix, offset uint32) []expr.Any {
	bits := p.Addr().BitLen()
	size := uint32(bits / 8)
	return []expr.Any{
		&expr.Payload{DestRegister: word0, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: word0, DestRegister: word0, Len: size, Mask: net.CIDRMask(p.Bits(), bits),
			Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: word0, Data: p.Masked().Addr().AsSlice()},
	}
}

// through matches the input or output link of a packet by name.
func through(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{
		&expr.Meta{Key: key, Register: word0},
		&expr.Cmp{Op: op, Register: word0, Data: padded},
	}
}

func join[T any](parts ...[]T) []T { return slices.Concat(parts...) }
