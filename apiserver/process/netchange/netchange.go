// Package netchange watches the addresses and routes of this machine.
package netchange

import (
	"context"

	"golang.org/x/sys/unix"

	"monopod/apiserver/process/kernel"
)

// groups of rtnetlink that report changes of addresses and routes.
const groups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE

// Watch sends after changes of addresses or routes in the network namespace of the caller, as kernel.Watch describes. The
// link of each pod has a dozen when it comes and goes: whoever receives them waits a moment for the others.
func Watch(ctx context.Context) <-chan struct{} {
	bind := func(fd int) error {
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
	}
	return kernel.Netlink(ctx, unix.NETLINK_ROUTE, bind, func(uint16) bool { return true })
}
