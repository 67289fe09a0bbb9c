package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"monopod/apiserver/process/guard"
)

// Watch sends after somebody removed rules, sets, chains or tables in the network namespace of the caller, as `nft flush
// ruleset` does, and closes the channel when ctx ends. Removals that follow each other before they are received are one. If
// the kernel cannot tell, it never sends. Nothing runs meanwhile: the kernel filters all other changes.
func Watch(ctx context.Context) <-chan struct{} {
	removals := make(chan struct{}, 1)
	socket, err := listen()
	if err != nil {
		context.AfterFunc(ctx, func() { close(removals) })
		return removals
	}
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	guard.Spawn(func() error {
		defer close(removals)
		defer socket.Close()
		defer stop()
		for message := make([]byte, os.Getpagesize()); ; {
			// A message that does not fit, or was lost in a full buffer, is a removal, too.
			if _, err := socket.Read(message); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return nil
			}
			select {
			case removals <- struct{}{}:
			default:
			}
		}
	})
	return removals
}

// listen returns a socket that receives a message for each transaction that removes something.
func listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "nfnetlink")
	filter, err := removals()
	if err == nil {
		err = errors.Join(
			unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
			unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
			unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES))
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}

// removals returns a filter for messages that begin with a removal. A table is removed after its rules and sets, so that
// the message for the table itself may follow others in one packet.
func removals() ([]unix.SockFilter, error) {
	const typeAt = 4 // offset in nlmsghdr
	kinds := []uint16{unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELTABLE}
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: typeAt, Size: 2}}
	for i, kind := range kinds {
		// Filters read big-endian numbers.
		is := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.NFNL_SUBSYS_NFTABLES<<8|kind))
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(is), SkipTrue: uint8(len(kinds) - i)})
	}
	program = append(program, bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: 1 << 16})
	raw, err := bpf.Assemble(program)
	var out []unix.SockFilter
	for _, r := range raw {
		out = append(out, unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K})
	}
	return out, err
}

// Verify checks that the kernel still has the table. If it has not, the next Sync writes all of it.
func (t *Table) Verify() error {
	if !t.known {
		return nil
	}
	conn, err := Dial()
	if err != nil {
		return err
	}
	ok, err := t.chains(conn, map[string]struct{}{})
	t.known = ok && err == nil
	return err
}
