// Package netchange tells when addresses or routes of this machine change.
package netchange

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"monopod/apiserver/process/guard"
)

// groups of rtnetlink that report changes of addresses and routes.
const groups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE

// Watch sends after changes of addresses or routes in the network namespace of the caller, and closes the channel
// when ctx ends. Changes that follow each other before they are received are one. If the kernel cannot tell, it
// never sends. Nothing runs meanwhile.
func Watch(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{}, 1)
	socket, err := open()
	if err != nil {
		context.AfterFunc(ctx, func() { close(changes) })
		return changes
	}
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	guard.Spawn(func() error {
		defer close(changes)
		defer socket.Close()
		defer stop()
		for message := make([]byte, os.Getpagesize()); ; {
			// A message that does not fit, or was lost in a full buffer, is a change, too.
			if _, err := socket.Read(message); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return nil
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	})
	return changes
}

// open returns a socket that receives a message for each change.
func open() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "rtnetlink")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}
