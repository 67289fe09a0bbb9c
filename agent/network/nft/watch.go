package nft

import (
	"context"
	"errors"

	"github.com/google/nftables"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"monopod/apiserver/process/kernel"
)

// Watch sends whenever another program has removed rules, sets, chains or tables in the network namespace of the caller, as `nft flush
// ruleset` does; see kernel.Watch. The kernel filters all other changes.
func Watch(ctx context.Context) <-chan struct{} {
	return kernel.Netlink(ctx, unix.NETLINK_NETFILTER, func(fd int) error {
		return errors.Join(
			kernel.Filter(fd, removals()),
			unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
			unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES))
	})
}

// removals returns a program that passes messages that begin with a removal. A table is removed after its rules and sets, so
// that the message for the table itself may follow others in one packet.
func removals() []bpf.Instruction {
	const typeAt = 4 // offset in nlmsghdr
	kinds := []uint16{unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELTABLE}
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: typeAt, Size: 2}}
	for i, kind := range kinds {
		is := kernel.Number(unix.NFNL_SUBSYS_NFTABLES<<8 | kind)
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: is, SkipTrue: uint8(len(kinds) - i)})
	}
	return append(program, bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: 1 << 16})
}

// Verify checks that the kernel still has the table. If not, the next Sync writes all of it.
func (t *Table) Verify() error {
	if !t.known {
		return nil
	}
	return t.Do(func(conn *nftables.Conn) error {
		ok, err := t.chains(conn, map[string]struct{}{})
		t.known = ok && err == nil
		return err
	})
}
