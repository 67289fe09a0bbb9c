package nft

import (
	"context"
	"errors"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monopod/apiserver/kit/kernel"
)

// Watch sends whenever another program has removed rules, sets, chains or tables in the network namespace of the
// caller, as `nft flush ruleset` does; see kernel.Netlink. A table is removed after its rules and sets, so that the
// message for the table itself may follow others in one packet.
func Watch(ctx context.Context) <-chan struct{} {
	bind := func(fd int) error {
		return errors.Join(
			unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
			unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES))
	}
	return kernel.Netlink(ctx, unix.NETLINK_NETFILTER, bind, func(kind uint16) bool {
		switch kind &^ (unix.NFNL_SUBSYS_NFTABLES << 8) {
		case unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELTABLE:
			return true
		}
		return false
	})
}

// Verify checks that the kernel still has the table. If not, the next Sync writes all of it.
func (t *Table) Verify() error {
	if !t.synced {
		return nil
	}
	return t.Do(func(conn *nftables.Conn) error {
		ok, err := t.chains(conn, map[string]struct{}{})
		t.synced = ok && err == nil
		return err
	})
}
