package policy

import (
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	netutils "k8s.io/utils/net"
)

// addrRange is a range of addresses of one family, both ends included.
type addrRange struct{ first, last netip.Addr }

// ranges are ranges of addresses; merged sorts them and joins those that touch.
type ranges []addrRange

// blockRanges returns the addresses of a block without its exceptions.
func blockRanges(block *networkingv1.IPBlock) (ranges, error) {
	all, err := rangeOf(block.CIDR)
	if err != nil {
		return nil, err
	}
	left := ranges{all}
	for _, text := range block.Except {
		except, err := rangeOf(text)
		if err != nil {
			return nil, err
		}
		left = left.without(except)
	}
	return left, nil
}

// rangeOf returns the addresses of a CIDR. It accepts the notations of older versions.
func rangeOf(cidr string) (addrRange, error) {
	_, block, err := netutils.ParseCIDRSloppy(cidr)
	if err != nil {
		return addrRange{}, fmt.Errorf("parse %q: %w", cidr, err)
	}
	first, ok := netip.AddrFromSlice(block.IP)
	if !ok {
		return addrRange{}, fmt.Errorf("parse %q: not an address", cidr)
	}
	last := first.AsSlice()
	for i := range last {
		last[i] |= ^block.Mask[i]
	}
	end, _ := netip.AddrFromSlice(last)
	return addrRange{first, end}, nil
}

func (r ranges) without(except addrRange) ranges {
	var out ranges
	for _, a := range r {
		if a.first.BitLen() != except.first.BitLen() || except.last.Less(a.first) || a.last.Less(except.first) {
			out = append(out, a)
			continue
		}
		if a.first.Less(except.first) {
			out = append(out, addrRange{a.first, except.first.Prev()})
		}
		if except.last.Less(a.last) {
			out = append(out, addrRange{except.last.Next(), a.last})
		}
	}
	return out
}

func (r ranges) merged() ranges {
	sorted := slices.SortedFunc(slices.Values(r), func(a, b addrRange) int { return a.first.Compare(b.first) })
	var out ranges
	for _, a := range sorted {
		n := len(out)
		if n == 0 || out[n-1].first.BitLen() != a.first.BitLen() || out[n-1].last.Less(a.first) &&
			out[n-1].last.Next() != a.first {
			out = append(out, a)
		} else if out[n-1].last.Less(a.last) {
			out[n-1].last = a.last
		}
	}
	return out
}

// of returns the ranges of a family.
func (r ranges) of(is4 bool) ranges {
	return slices.DeleteFunc(slices.Clone(r), func(a addrRange) bool { return a.first.Is4() != is4 })
}
