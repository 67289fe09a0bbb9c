package batch

import (
	"fmt"
	"strconv"
	"strings"
)

// indexes are those of an indexed job's pods, as intervals in their order:
// "1,3-5,7" in a status or a rule.
type indexes []interval

// interval is from first to last, both of them in it.
type interval struct{ first, last int32 }

// parseIndexes reads a list of indexes below completions.
func parseIndexes(text string, completions int32) (indexes, error) {
	if text == "" {
		return nil, nil
	}
	var list indexes
	for part := range strings.SplitSeq(text, ",") {
		i, err := parseInterval(part, completions)
		if err != nil {
			return nil, err
		}
		if n := len(list); n > 0 && list[n-1].last >= i.first {
			return nil, errOrder(list[n-1].last, i.first)
		}
		list = append(list, i)
	}
	return list, nil
}

func parseInterval(text string, completions int32) (interval, error) {
	first, last, isRange := strings.Cut(text, "-")
	if strings.Contains(last, "-") {
		return interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	x, err := parseIndex(first, completions)
	if err != nil || !isRange {
		return interval{x, x}, err
	}
	y, err := parseIndex(last, completions)
	if err == nil && x >= y {
		err = errOrder(x, y)
	}
	return interval{x, y}, err
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

func (list indexes) count() int32 {
	var n int32
	for _, i := range list {
		n += i.last - i.first + 1
	}
	return n
}

// overlap is the first index that both lists have.
func (list indexes) overlap(other indexes) (int32, bool) {
	for len(list) > 0 && len(other) > 0 {
		a, b := list[0], other[0]
		switch {
		case a.last < b.first:
			list = list[1:]
		case b.last < a.first:
			other = other[1:]
		default:
			return max(a.first, b.first), true
		}
	}
	return 0, false
}
