package nft

import (
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Meta matches packets by one of their properties, for example the name of a link or the protocol above IP.
func Meta(key expr.MetaKey, op expr.CmpOp, value []byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: FirstRegister},
		&expr.Cmp{Op: op, Register: FirstRegister, Data: value},
	}
}

// Link matches the input or output link by name; key is MetaKeyIIFNAME or MetaKeyOIFNAME.
func Link(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return Meta(key, op, padded)
}

// L4Protocol matches the protocol above IP.
func L4Protocol(op expr.CmpOp, number byte) []expr.Any {
	return Meta(expr.MetaKeyL4PROTO, op, []byte{number})
}

// ToLocal matches packets for an address of this machine (RTN_LOCAL).
func ToLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: FirstRegister, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: FirstRegister, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// Reply matches the packets of a connection against the direction of its first one.
func Reply() []expr.Any {
	const reply = 1 // IP_CT_DIR_REPLY
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: FirstRegister},
		&expr.Cmp{Op: expr.CmpOpEq, Register: FirstRegister, Data: []byte{reply}},
	}
}

// States matches packets in one of the states of connections.
func States(mask uint32) []expr.Any { return conntrackBits(expr.CtKeySTATE, mask) }

// Translated matches connections whose destination was translated (IPS_DST_NAT).
func Translated() []expr.Any { return conntrackBits(expr.CtKeySTATUS, 1<<5) }

func conntrackBits(key expr.CtKey, mask uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: FirstRegister},
		&expr.Bitwise{SourceRegister: FirstRegister, DestRegister: FirstRegister, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: FirstRegister, Data: make([]byte, 4)},
	}
}

// NotToLoopback6 excludes packets for ::1: the kernel does not let packets from there leave by a link, unlike those
// from 127.0.0.1. It matches every IPv4 packet.
func (f Family) NotToLoopback6() []expr.Any {
	if f.IPFamily != corev1.IPv6Protocol {
		return nil
	}
	loopback := &expr.Cmp{Op: expr.CmpOpNeq, Register: f.Destination(), Data: netip.IPv6Loopback().AsSlice()}
	return append(f.LoadDestination(), loopback)
}
