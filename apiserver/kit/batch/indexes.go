// Package batch contains the parts of Jobs and CronJobs that the API and the controllers share: lists of completion
// indexes of an Indexed Job, as in its status and its success policy ("1,3-5,7"), and schedules of CronJobs.
package batch

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Indexes contains indexes as intervals in increasing order.
type Indexes []Interval

// Interval is from First to Last, both included.
type Interval struct{ First, Last int32 }

// ParseIndexes parses a list of indexes below completions.
func ParseIndexes(text string, completions int32) (Indexes, error) {
	if text == "" {
		return nil, nil
	}
	var list Indexes
	for part := range strings.SplitSeq(text, ",") {
		i, err := parseInterval(part, completions)
		if err != nil {
			return nil, err
		}
		if n := len(list); n > 0 && list[n-1].Last >= i.First {
			return nil, errOrder(list[n-1].Last, i.First)
		}
		list = append(list, i)
	}
	return list, nil
}

func parseInterval(text string, completions int32) (Interval, error) {
	first, last, isRange := strings.Cut(text, "-")
	if strings.Contains(last, "-") {
		return Interval{}, fmt.Errorf("the fragment %q violates the requirement that "+
			"an index interval can have at most two parts separated by '-'", text)
	}
	x, err := parseIndex(first, completions)
	if err != nil || !isRange {
		return Interval{x, x}, err
	}
	y, err := parseIndex(last, completions)
	if err == nil && x >= y {
		err = errOrder(x, y)
	}
	return Interval{x, y}, err
}

func parseIndex(text string, completions int32) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if n >= int64(completions) {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return int32(n), nil
}

func errOrder(previous, current int32) error {
	return fmt.Errorf("non-increasing order, previous: %d, current: %d", previous, current)
}

// IndexesOf returns the list of indexes, which may be in any order.
func IndexesOf(indexes ...int32) Indexes {
	slices.Sort(indexes)
	list := make(Indexes, len(indexes))
	for i, x := range indexes {
		list[i] = Interval{x, x}
	}
	return list.Merge(nil)
}

// Merge returns the indexes of both lists, in as few intervals as possible.
func (list Indexes) Merge(other Indexes) Indexes {
	all := slices.Concat(list, other)
	slices.SortFunc(all, func(a, b Interval) int { return cmp.Compare(a.First, b.First) })
	var merged Indexes
	for _, i := range all {
		if n := len(merged); n > 0 && i.First <= merged[n-1].Last+1 {
			merged[n-1].Last = max(merged[n-1].Last, i.Last)
			continue
		}
		merged = append(merged, i)
	}
	return merged
}

// Below returns the indexes below n.
func (list Indexes) Below(n int32) Indexes {
	var out Indexes
	for _, i := range list {
		if i.First < n {
			out = append(out, Interval{i.First, min(i.Last, n-1)})
		}
	}
	return out
}

// Missing returns at most n indexes below completions that are not in the list, the
// lowest first. The list must be merged.
func (list Indexes) Missing(n int, completions int32) []int32 {
	var out []int32
	next := int32(0)
	for _, i := range append(slices.Clone(list), Interval{completions, completions}) {
		for ; next < i.First && next < completions && len(out) < n; next++ {
			out = append(out, next)
		}
		next = max(next, i.Last+1)
	}
	return out
}

// Has reports whether the index is in the list.
func (list Indexes) Has(index int32) bool {
	at, found := slices.BinarySearchFunc(list, index, func(i Interval, x int32) int { return cmp.Compare(i.Last, x) })
	return found || at < len(list) && list[at].First <= index
}

// Count returns the number of indexes.
func (list Indexes) Count() int32 {
	var n int32
	for _, i := range list {
		n += i.Last - i.First + 1
	}
	return n
}

// Common returns the number of indexes that are in both lists.
func (list Indexes) Common(other Indexes) int32 {
	return list.Count() + other.Count() - list.Merge(other).Count()
}

// Overlap returns the first index that is in both lists. It returns false if there is none.
func (list Indexes) Overlap(other Indexes) (int32, bool) {
	for len(list) > 0 && len(other) > 0 {
		a, b := list[0], other[0]
		switch {
		case a.Last < b.First:
			list = list[1:]
		case b.Last < a.First:
			other = other[1:]
		default:
			return max(a.First, b.First), true
		}
	}
	return 0, false
}

// String formats the list as upstream: "1,2,4-6", with a range for three indexes or more.
func (list Indexes) String() string {
	var b strings.Builder
	for _, i := range list {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		switch {
		case i.First == i.Last:
			fmt.Fprint(&b, i.First)
		case i.First+1 == i.Last:
			fmt.Fprintf(&b, "%d,%d", i.First, i.Last)
		default:
			fmt.Fprintf(&b, "%d-%d", i.First, i.Last)
		}
	}
	return b.String()
}
