package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The table contains the medians of the rounds, and the medians of the rounds' ratios.
func TestTable(t *testing.T) {
	t.Parallel()
	c := comparison{rows: regexp.MustCompile("one pod|killed|LIST 6"), measured: map[string][2][]float64{}}
	for _, g := range groups {
		for _, text := range []string{"10 ms/start\t5 ms/delete", "20 ms/start\t5 ms/delete", "90 ms/start\t9 ms/delete"} {
			c.add(0, figures("goos: linux\nBenchmarkPodLife/pods=1-2 \t 1\t "+text+"\nBenchmarkBurst 1 0 killed\nPASS\n"), g)
			c.add(1, figures("BenchmarkPodLife/pods=1 \t 1\t 20 ms/start 2500 ms/delete\nBenchmarkBurst \t 1 \t 0 killed\n"), g)
		}
	}
	var out strings.Builder
	c.print(&out)
	const want = `| figure | last commit | now | ratio |
|--- |--- |--- |--- |
| LIST 6,000 pods, p50, ms | – | – | – |
| one pod: create to Running, p50, ms | 20.0 | 20.0 | 1.00 |
| one pod: delete to gone, p50, ms | 5.00 | 2,500 | 500 |
| 20 pods in 128 MB: killed by the kernel | 0 | 0 | – |
`
	got := regexp.MustCompile(` +`).ReplaceAllString(out.String(), " ")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Each figure has a row of the same name in docs/benchmarks.md.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, r := range g.rows {
			if !strings.Contains(string(page), "\n| "+r.figure+" | ") {
				t.Errorf("docs/benchmarks.md has no row %q", r.figure)
			}
		}
	}
}
