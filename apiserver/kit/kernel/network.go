package kernel

import (
	"context"

	"golang.org/x/sys/unix"
)

// groups of rtnetlink that report changes of addresses and routes.
const groups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE

// WatchNetwork sends after changes of addresses or routes in the network namespace of the caller, as kernel.Watch
// describes. The link of each pod has a dozen such changes when it comes and goes: the caller waits for the last of
// them.
func WatchNetwork(ctx context.Context) <-chan struct{} {
	return Netlink(ctx, unix.NETLINK_ROUTE, func(fd int) error {
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
	}, func(uint16) bool { return true })
}
