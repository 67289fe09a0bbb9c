package nft

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Family contains the differences between the IP families, and builds the expressions that load the parts of a packet.
//
// Registers are words. From the first one on they contain: source . destination . protocol . port, so that each key is
// a sequence of them.
type Family struct {
	corev1.IPFamily
	Table   nftables.TableFamily
	Address nftables.SetDatatype
	Size    uint32 // of an address, in bytes
	source  uint32 // offset of the source address in the packet; the destination follows it
}

// FamilyOf returns the Family of a name.
func FamilyOf(name corev1.IPFamily) Family {
	if name == corev1.IPv6Protocol {
		return Family{name, nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 16, 8}
	}
	return Family{name, nftables.TableFamilyIPv4, nftables.TypeIPAddr, 4, 12}
}

// FirstRegister is the first of the registers of one word.
const FirstRegister = uint32(unix.NFT_REG32_00)

// Source is the register that LoadSource fills.
func (f Family) Source() uint32 { return FirstRegister }

// Destination is the register that LoadDestination fills.
func (f Family) Destination() uint32 { return FirstRegister + f.Size/4 }

// Protocol is the first of the two registers that LoadPort fills.
func (f Family) Protocol() uint32 { return FirstRegister + 2*f.Size/4 }

// LoadSource loads the source address.
func (f Family) LoadSource() []expr.Any { return f.LoadSourceInto(f.Source()) }

// LoadSourceInto loads the source address into another register.
func (f Family) LoadSourceInto(register uint32) []expr.Any { return f.load(register, f.source) }

// LoadDestination loads the destination address.
func (f Family) LoadDestination() []expr.Any { return f.load(f.Destination(), f.source+f.Size) }

func (f Family) load(register, offset uint32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.Size},
	}
}

// SourceIn matches packets from a range of addresses.
func (f Family) SourceIn(p netip.Prefix) []expr.Any {
	return append(f.LoadSource(), inRange(f.Source(), p)...)
}

// DestinationIn matches packets to a range of addresses.
func (f Family) DestinationIn(p netip.Prefix) []expr.Any {
	return append(f.LoadDestination(), inRange(f.Destination(), p)...)
}

func inRange(register uint32, p netip.Prefix) []expr.Any {
	bits := p.Addr().BitLen()
	return []expr.Any{
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(bits / 8),
			Mask: net.CIDRMask(p.Bits(), bits), Xor: make([]byte, bits/8)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: p.Masked().Addr().AsSlice()},
	}
}

// LoadPort loads the protocol and the destination port.
func (f Family) LoadPort() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.Protocol()},
		&expr.Payload{DestRegister: f.Protocol() + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// Contains continues the rule if the set contains the key that begins at the register.
func Contains(set *nftables.Set, register uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: register, SetName: set.Name, SetID: set.ID}}
}

// Decide executes the verdict that the map has for the key that begins at the register.
func Decide(set *nftables.Set, register uint32) []expr.Any {
	return Find(set, register, unix.NFT_REG_VERDICT)
}

// Find loads the value of the key that begins at one register into another, and continues the rule if there is one.
func Find(set *nftables.Set, key, value uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{
		SourceRegister: key, DestRegister: value, IsDestRegSet: true, SetName: set.Name, SetID: set.ID,
	}}
}

// Verdict ends the rule; chain is where Jump and Goto lead.
func Verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

// PortKey is protocol . port as a part of keys: each begins a new word, as in the registers.
func PortKey(protocol corev1.Protocol, port uint16) string {
	return string([]byte{ProtocolNumber(protocol), 0, 0, 0}) + PortWord(port)
}

// PortWord is a port in the first half of a word.
func PortWord(port uint16) string {
	return string(append(binary.BigEndian.AppendUint16(nil, port), 0, 0))
}

// ProtocolNumber returns the number of a protocol in IP headers; empty means TCP.
func ProtocolNumber(protocol corev1.Protocol) byte {
	switch protocol {
	case corev1.ProtocolUDP:
		return unix.IPPROTO_UDP
	case corev1.ProtocolSCTP:
		return unix.IPPROTO_SCTP
	}
	return unix.IPPROTO_TCP
}

// Join concatenates expressions.
func Join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

// NewSet returns a set, or a map if value is not empty. A key may have several parts. id identifies the set within the
// transaction.
func NewSet(table *nftables.Table, name string, id uint32, key []nftables.SetDatatype,
	value nftables.SetDatatype) *nftables.Set {
	set := &nftables.Set{
		Table: table, Name: name, ID: id, IsMap: value.Name != "", DataType: value,
		KeyType: key[0], Concatenation: len(key) > 1,
	}
	if len(key) > 1 {
		set.KeyType = nftables.MustConcatSetType(key...)
	}
	return set
}

// ChainOf returns the chain of a verdict that the kernel returned; empty: it has none.
func ChainOf(value []byte) string {
	ad, err := netlink.NewAttributeDecoder(value)
	if err != nil {
		return ""
	}
	for ad.Next() {
		if ad.Type() == unix.NFTA_VERDICT_CHAIN {
			return ad.String()
		}
	}
	return ""
}
