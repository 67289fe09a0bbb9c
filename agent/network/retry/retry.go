// Package retry reads lists of links, addresses, routes and rules from the kernel.
package retry

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// attempts is the maximum number of reads of a list that changes meanwhile, for instance because other pods start.
const attempts = 20

// All reads a list until it is consistent. If it keeps changing, All returns the last state, which may be wrong about
// entries that were just added or removed.
func All[T any](read func() ([]T, error)) (list []T, err error) {
	for range attempts {
		if list, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return list, nil
}
