// Package spelling finds what somebody meant who has mistyped a name.
package spelling

// Similar reports whether two names differ, by two letters at most: one removed, added or replaced, or two exchanged.
func Similar(a, b string) bool {
	const most = 2
	x, y := []rune(a), []rune(b)
	if a == b || max(len(x)-len(y), len(y)-len(x)) > most || min(len(x), len(y)) <= 2*most {
		return false
	}
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		before := row[0]
		row[0] = i + 1
		for j := range y {
			change := before
			if x[i] != y[j] {
				change++
			}
			before, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)] <= most
}
