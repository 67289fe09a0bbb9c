// Package sieve tells, mostly without a look at an object's labels, that a label selector does not match the object. Labels are a map: to look up
// one of them in each of ten thousand objects is more than half of what such a list costs, since no cache of the processor holds them.
package sieve

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// Mask has some bits for each of some labels.
type Mask uint64

// known is a bit of every object's mask that was computed. No label has it.
const known Mask = 1 << 63

var seed = maphash.MakeSeed()

// Of returns the mask of one label.
func Of(key, value string) Mask {
	h := maphash.String(seed, key) ^ bits.RotateLeft64(maphash.String(seed, value), 17)
	return 1<<(h%63) | 1<<(h>>32%63)
}

// Labeled has labels.
type Labeled interface{ GetLabels() map[string]string }

// Marks are the mask of an object whose labels never change. The zero value computes it when it is first needed.
type Marks struct{ mask atomic.Uint64 }

// Lacks reports whether the object is known not to have one of the wanted labels.
func (m *Marks) Lacks(wanted Mask, of Labeled) bool { return wanted != 0 && m.all(of)&wanted != wanted }

func (m *Marks) all(of Labeled) Mask {
	if had := Mask(m.mask.Load()); had != 0 {
		return had
	}
	all := known
	for key, value := range of.GetLabels() {
		all |= Of(key, value)
	}
	m.mask.Store(uint64(all))
	return all
}
