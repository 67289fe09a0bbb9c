package batch

import (
	"fmt"
	"math"
	"testing"
)

func parse(t *testing.T, text string) Indexes {
	t.Helper()
	list, err := ParseIndexes(text, math.MaxInt32)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":        "[] <nil>",
		"0":       "[{0 0}] <nil>",
		"1,3-5,7": "[{1 1} {3 5} {7 7}] <nil>",
		"1,2":     "[{1 1} {2 2}] <nil>",
		"10":      `[] too large index: "10"`,
		"2-1":     "[] non-increasing order, previous: 2, current: 1",
		"3,3":     "[] non-increasing order, previous: 3, current: 3",
		"1-2-3": `[] the fragment "1-2-3" violates the requirement that an index interval can have at most two parts ` +
			`separated by '-'`,
		"x": `[] cannot convert string to integer for index: "x"`,
	} {
		list, err := ParseIndexes(text, 10)
		if got := fmt.Sprint([]Interval(list), " ", err); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ what, got, want string }{
		{"of", IndexesOf(7, 1, 3, 2, 5).String(), "1-3,5,7"},
		{"two neighbours", IndexesOf(1, 2).String(), "1,2"},
		{"merge", parse(t, "1,2,9").Merge(parse(t, "3-5,7")).String(), "1-5,7,9"},
		{"merge of a subset", parse(t, "1-9").Merge(parse(t, "3-5")).String(), "1-9"},
		{"below", parse(t, "1-3,5,7-9").Below(8).String(), "1-3,5,7"},
		{"missing", fmt.Sprint(parse(t, "1-2,5").Missing(3, 8)), "[0 3 4]"},
		{"missing to the end", fmt.Sprint(parse(t, "1-2,5").Missing(9, 8)), "[0 3 4 6 7]"},
		{"missing of none", fmt.Sprint(Indexes(nil).Missing(2, 3)), "[0 1]"},
		{"missing of all", fmt.Sprint(parse(t, "0-2").Missing(2, 3)), "[]"},
		{"beyond the end", fmt.Sprint(parse(t, "0-5").Missing(2, 3)), "[]"},
		{"count", fmt.Sprint(parse(t, "1-3,5").Count()), "4"},
		{"common", fmt.Sprint(parse(t, "1-3,5").Common(parse(t, "0-1,3-9"))), "3"},
		{"has", fmt.Sprint(parse(t, "1-3,5").Has(0), parse(t, "1-3,5").Has(2), parse(t, "1-3,5").Has(4),
			parse(t, "1-3,5").Has(5), parse(t, "1").Has(6)), "false true false true false"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
}
