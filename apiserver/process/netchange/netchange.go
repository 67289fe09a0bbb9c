// Package netchange watches the addresses and routes of this machine.
package netchange

import (
	"context"
	"errors"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"monopod/apiserver/process/kernel"
)

// groups of rtnetlink that report changes of addresses and routes.
const groups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE

// Watch sends after changes of addresses or routes in the network namespace of the caller, as kernel.Watch describes. The
// kernel filters what only the link itself needs: the link of each pod has a dozen such changes when it comes and goes.
func Watch(ctx context.Context) <-chan struct{} {
	return kernel.Netlink(ctx, unix.NETLINK_ROUTE, listen)
}

// listen makes a socket of rtnetlink receive the changes.
func listen(fd int) error {
	return errors.Join(
		kernel.Filter(fd, wide()),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}))
}

// Offsets in a message: nlmsghdr, and ifaddrmsg or rtmsg after it.
const (
	typeAt       = 4
	familyAt     = unix.SizeofNlMsghdr
	scopeAt      = unix.SizeofNlMsghdr + 3 // of an address
	tableAt      = unix.SizeofNlMsghdr + 4 // of a route
	attributesAt = unix.SizeofNlMsghdr + unix.SizeofRtMsg
)

// wide returns a program that passes messages unless they are about link-local IPv6 addresses, or about routes to them or to
// multicast groups, or about routes of the local table: the addresses that these follow from have messages of their own.
func wide() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: typeAt, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: kernel.Number(unix.RTM_NEWROUTE), SkipTrue: 7},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: kernel.Number(unix.RTM_DELROUTE), SkipTrue: 6},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: kernel.Number(unix.RTM_NEWADDR), SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: kernel.Number(unix.RTM_DELADDR), SkipTrue: 17},
		bpf.LoadAbsolute{Off: familyAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_INET6, SkipTrue: 15},
		bpf.LoadAbsolute{Off: scopeAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.RT_SCOPE_LINK, SkipTrue: 12, SkipFalse: 13},
		// A route.
		bpf.LoadAbsolute{Off: tableAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.RT_TABLE_LOCAL, SkipTrue: 10},
		bpf.LoadAbsolute{Off: familyAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_INET6, SkipTrue: 9},
		bpf.LoadConstant{Dst: bpf.RegX, Val: unix.RTA_DST},
		bpf.LoadConstant{Dst: bpf.RegA, Val: attributesAt},
		bpf.LoadExtension{Num: bpf.ExtNetlinkAttr},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 5}, // a default route
		bpf.TAX{},
		bpf.LoadIndirect{Off: unix.SizeofRtAttr, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0xff, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0xfe, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 1 << 16},
	}
}
