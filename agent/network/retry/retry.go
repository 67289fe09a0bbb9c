// Package retry reads lists of links, addresses, routes and rules from the kernel.
package retry

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// attempts is how often a list is read that changes while it is read, as it does when other pods start.
const attempts = 20

// All reads a list until it is consistent. If it keeps changing, its last state counts, in which an entry that has just
// been added or removed may be missing or too many.
func All[T any](read func() ([]T, error)) (list []T, err error) {
	for range attempts {
		if list, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return list, nil
}
