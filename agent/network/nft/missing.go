package nft

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Missing reports whether the error of a request that only names or lists tables means that the kernel lacks nftables:
// it has no netlink for netfilter (EPROTONOSUPPORT), no nf_tables (EINVAL), or does not support the family. The kernel
// then has no tables either.
func Missing(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EAFNOSUPPORT) ||
		errors.Is(err, unix.EOPNOTSUPP)
}
