package nft

import (
	"encoding/binary"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
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
	size    uint32 // of an address
	source  uint32 // offset of the source address in the packet; the destination follows it
}

// FamilyOf returns the Family of a name.
func FamilyOf(name corev1.IPFamily) Family {
	if name == corev1.IPv6Protocol {
		return Family{name, nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 16, 8}
	}
	return Family{name, nftables.TableFamilyIPv4, nftables.TypeIPAddr, 4, 12}
}

// Word is the first register.
const Word = uint32(unix.NFT_REG32_00)

// Source is the register that LoadSource fills.
func (f Family) Source() uint32 { return Word }

// Destination is the register that LoadDestination fills.
func (f Family) Destination() uint32 { return Word + f.size/4 }

// Protocol is the first of the two registers that LoadPort fills.
func (f Family) Protocol() uint32 { return Word + 2*f.size/4 }

// LoadSource loads the source address.
func (f Family) LoadSource() []expr.Any { return f.load(f.Source(), f.source) }

// LoadDestination loads the destination address.
func (f Family) LoadDestination() []expr.Any { return f.load(f.Destination(), f.source+f.size) }

func (f Family) load(register, offset uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset,
		Len: f.size}}
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
	return []expr.Any{&expr.Lookup{SourceRegister: register, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true,
		SetName: set.Name, SetID: set.ID}}
}

// Verdict ends the rule; chain is where Jump and Goto lead.
func Verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

// PortKey is protocol . port as a part of keys: each begins a new word, as in the registers.
func PortKey(protocol corev1.Protocol, port uint16) string {
	number := byte(unix.IPPROTO_TCP)
	switch protocol {
	case corev1.ProtocolUDP:
		number = unix.IPPROTO_UDP
	case corev1.ProtocolSCTP:
		number = unix.IPPROTO_SCTP
	}
	return string(append(binary.BigEndian.AppendUint16([]byte{number, 0, 0, 0}, port), 0, 0))
}

// Join concatenates expressions.
func Join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

// NewSet returns a set with a key of several parts, and for a map the type of its values.
func NewSet(table *nftables.Table, name string, id uint32, key []nftables.SetDatatype,
	value nftables.SetDatatype) *nftables.Set {
	set := &nftables.Set{
		Table: table, Name: name, ID: id, KeyType: key[0], IsMap: value.Name != "", DataType: value, Concatenation: len(key) > 1,
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

// Reply matches the packets of a connection against the direction of its first one.
func Reply() []expr.Any {
	const reply = 1 // IP_CT_DIR_REPLY
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: Word}, &expr.Cmp{Op: expr.CmpOpEq, Register: Word, Data: []byte{reply}}}
}

// States matches packets in one of the states of connections.
func States(mask uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: Word},
		&expr.Bitwise{SourceRegister: Word, DestRegister: Word, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: Word, Data: make([]byte, 4)},
	}
}
