package load_test

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// result is the rounds of a row.
type result struct {
	row
	base, now []sample
}

// of is the median of a figure.
func of(rounds []sample, figure func(sample) float64) float64 {
	figures := make([]float64, len(rounds))
	for i, s := range rounds {
		figures[i] = figure(s)
	}
	return median(figures)
}

// factors are by how much the CPU of a request has fallen, and by how much the rate has risen: the medians of what the rounds say,
// because what else runs on the machine affects two measurements in a row alike. They are 0 without a base.
func (r result) factors() (cpu, rate float64) {
	var cpus, rates []float64
	for i := range r.base {
		cpus, rates = append(cpus, r.base[i].each()/r.now[i].each()), append(rates, r.now[i].rate()/r.base[i].rate())
	}
	return median(cpus), median(rates)
}

// verdict says what was to be reached, and whether it was.
func (r result) verdict() string {
	var said []string
	if cpu, rate := r.factors(); r.factor > 0 && len(r.base) > 0 {
		is := "missed"
		switch byCPU, byRate := cpu >= r.factor, rate >= r.factor; {
		case byCPU && byRate:
			is = "met"
		case byCPU:
			is = "met by CPU, missed by rate"
		case byRate:
			is = "met by rate, missed by CPU"
		}
		said = append(said, fmt.Sprintf("≥ %v ×: %s", r.factor, is))
	}
	for _, l := range r.limits {
		figure := func(s sample) float64 { return s.figures[l.unit] }
		if l.unit == perSecond {
			figure = sample.rate
		}
		now, wanted, is := of(r.now, figure), fmt.Sprintf("≤ %v", short(l.most)), "missed"
		if l.least > 0 {
			wanted = fmt.Sprintf("≥ %v", short(l.least))
		}
		if l.least > 0 && now >= l.least || l.least == 0 && now <= l.most {
			is = "met"
		}
		was := ""
		if base := of(r.base, figure); base > 0 {
			was = ", was " + short(base)
		}
		said = append(said, fmt.Sprintf("%s %s%s (%s: %s)", short(now), l.unit, was, wanted, is))
	}
	return strings.Join(said, "; ")
}

// short is a figure with three digits, or all before the point.
func short(v float64) string {
	digits := 0
	if v > 0 && v < 100 {
		digits = max(0, 2-int(math.Floor(math.Log10(v))))
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	whole, rest, point := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest = strings.TrimRight(rest, "0"); point && rest != "" {
		whole += "." + rest
	}
	return whole
}

// report reports a row as figures of its benchmark.
func (r result) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for suffix, rounds := range map[string][]sample{"": r.now, "-base": r.base} {
		if len(rounds) == 0 {
			continue
		}
		if rounds[0].n > 0 {
			b.ReportMetric(of(rounds, sample.each), "µs-CPU"+suffix)
			b.ReportMetric(of(rounds, sample.rate), "each/s"+suffix)
		}
		for unit := range maps.Keys(rounds[0].figures) {
			b.ReportMetric(of(rounds, func(s sample) float64 { return s.figures[unit] }), unit+suffix)
		}
	}
}

// printTable prints results as they are written in docs/benchmarks.md.
func printTable(to io.Writer, all []result, machine string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(to, "\nServers of %.7s (base) and of now, in turn, medians; %s.\n\n", before, machine)
	w := tabwriter.NewWriter(to, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| row\t| server's CPU each, base\t| now\t| factor\t| a second, base\t| now\t| factor\t| to reach\t|")
	fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range all {
		cells := slices.Repeat([]string{""}, 6)
		if r.now[0].n > 0 {
			cells[1], cells[4] = short(of(r.now, sample.each))+" µs", short(of(r.now, sample.rate))
		}
		if len(r.base) > 0 && r.base[0].n > 0 {
			cpu, rate := r.factors()
			cells[0], cells[2] = short(of(r.base, sample.each))+" µs", fmt.Sprintf("%.2f", cpu)
			cells[3], cells[5] = short(of(r.base, sample.rate)), fmt.Sprintf("%.2f", rate)
		}
		fmt.Fprintf(w, "| %s\t| %s\t| %s\t|\n", strings.ReplaceAll(r.name, "-", " "), strings.Join(cells, "\t| "), r.verdict())
	}
	w.Flush()
	fmt.Fprintln(to)
}

// A row says what was measured, by how much it is better, and whether that is enough.
func TestTable(t *testing.T) {
	t.Parallel()
	rounds := func(n int, cpu ...time.Duration) (all []sample) {
		for _, c := range cpu {
			all = append(all, sample{n: n, cpu: c, took: time.Second, figures: map[string]float64{"ms-p99": 40}})
		}
		return all
	}
	for _, c := range []struct {
		r    result
		want string
	}{
		{result{row{name: "a-b", factor: 2}, rounds(100, 3*time.Second, 9*time.Second, 6*time.Second), rounds(200, 2*time.Second, 6*time.Second, 4*time.Second)},
			"| a b | 60,000 µs | 20,000 µs | 3.00 | 100 | 200 | 2.00 | ≥ 2 ×: met |"},
		{result{row{name: "x", factor: 2}, rounds(100, 2*time.Second), rounds(100, time.Second)},
			"| x | 20,000 µs | 10,000 µs | 2.00 | 100 | 100 | 1.00 | ≥ 2 ×: met by CPU, missed by rate |"},
		{result{row{name: "x", factor: 2}, rounds(100, 2*time.Second), rounds(200, 4*time.Second)},
			"| x | 20,000 µs | 20,000 µs | 1.00 | 100 | 200 | 2.00 | ≥ 2 ×: met by rate, missed by CPU |"},
		{result{row{name: "x", factor: 2}, rounds(100, 2*time.Second), rounds(100, 2*time.Second)},
			"| x | 20,000 µs | 20,000 µs | 1.00 | 100 | 100 | 1.00 | ≥ 2 ×: missed |"},
		{result{row{name: "x", factor: 2}, nil, rounds(3, time.Millisecond)},
			"| x | | 333 µs | | | 3 | | |"},
		{result{row{name: "x", limits: []limit{{unit: "ms-p99", most: 30}, {unit: perSecond, least: 200_000}}}, nil, rounds(250_000, time.Second)},
			"| x | | 4 µs | | | 250,000 | | 40 ms-p99 (≤ 30: missed); 250,000 a second (≥ 200,000: met) |"},
		{result{row{name: "x", limits: []limit{{unit: "ms-p99", most: 50}}}, rounds(0, 0), rounds(0, 0)},
			"| x | | | | | | | 40 ms-p99, was 40 (≤ 50: met) |"},
	} {
		var out strings.Builder
		printTable(&out, []result{c.r}, "a machine")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if got := strings.Join(strings.Fields(lines[len(lines)-1]), " "); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
