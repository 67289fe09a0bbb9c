// Command bench prints a table with the figures of docs/benchmarks.md for the working tree and for the last commit. It
// builds both programs, and runs the benchmarks of testdata with one program after the other, in rounds. Environment
// variables:
//
//	BASE       the commit to compare with; default HEAD, or HEAD~1 if the working tree is unchanged
//	BENCHTIME  number of rounds, for example 1x; default 5x
//	ROWS       regular expression of the figures to measure
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"monopod/testdata/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := command(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// comparison is a run of this command.
type comparison struct {
	dir      string
	programs [2]string // paths of the programs of the last commit and of the working tree
	rounds   int
	rows     *regexp.Regexp
	measured map[string][2][]float64 // by figure: the rounds of both programs
	failed   int                     // number of failed benchmark runs
}

func command(ctx context.Context) error {
	rounds, err := strconv.Atoi(strings.TrimSuffix(cmp.Or(os.Getenv("BENCHTIME"), "5x"), "x"))
	if err != nil || rounds < 1 {
		return fmt.Errorf("BENCHTIME must be a number of rounds, for example 5x, got %q", os.Getenv("BENCHTIME"))
	}
	rows, err := regexp.Compile(os.Getenv("ROWS"))
	if err != nil {
		return fmt.Errorf("ROWS: %w", err)
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &comparison{dir: dir,
		programs: [2]string{filepath.Join(dir, "last", "monopod"), filepath.Join(dir, "now", "monopod")},
		rounds:   rounds, rows: rows, measured: map[string][2][]float64{}}
	base, err := c.build(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if slices.ContainsFunc(g.rows, c.wanted) {
			if err := c.measure(ctx, g); err != nil {
				return err
			}
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("\nLast commit: %s. Medians of %d rounds in turn; load average at the end %s.\n\n", base, rounds,
		strings.Join(strings.Fields(string(load))[:2], ", "))
	c.print(os.Stdout)
	if c.failed > 0 {
		return fmt.Errorf("%d runs of benchmarks failed", c.failed)
	}
	return nil
}

func (c *comparison) wanted(r row) bool { return c.rows.MatchString(r.figure) }

// build builds both programs, and returns the description of the last commit.
func (c *comparison) build(ctx context.Context) (base string, err error) {
	base = os.Getenv("BASE")
	if base == "" {
		base = "HEAD"
		if changes, err := output(ctx, ".", "git", "status", "--porcelain"); err == nil && changes == "" {
			base = "HEAD~1"
		}
	}
	if err := compile(ctx, ".", c.programs[1]); err != nil {
		return "", err
	}
	source := filepath.Join(c.dir, "source")
	if _, err := output(ctx, ".", "git", "worktree", "add", "--detach", source, base); err != nil {
		return "", fmt.Errorf("cannot check out the last commit, which needs git and the history of the repository: %w", err)
	}
	defer func() { // without ctx, so that it also runs after an interrupt
		_, remove := output(context.WithoutCancel(ctx), ".", "git", "worktree", "remove", "--force", source)
		err = errors.Join(err, remove)
	}()
	if err := compile(ctx, source, c.programs[0]); err != nil {
		return "", err
	}
	return output(ctx, source, "git", "log", "-1", "--format=%h %s")
}

// compile compiles monopod as `make build` does.
func compile(ctx context.Context, source, program string) error {
	fmt.Fprintln(os.Stderr, "building", program)
	_, err := output(ctx, source, "env", "CGO_ENABLED=0", "go", "build", "-tags", "grpcnotrace", "-trimpath",
		"-ldflags=-s -w", "-o", program, ".")
	return err
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// measure runs all rounds of a group. The programs take turns in beginning a round.
func (c *comparison) measure(ctx context.Context, g group) error {
	if g.folder == "" {
		for i, program := range c.programs {
			info, err := os.Stat(program)
			if err != nil {
				return err
			}
			c.add(i, map[string]float64{" ": float64(info.Size()) / 1e6}, g)
		}
		return nil
	}
	test := filepath.Join(c.dir, g.folder+".test")
	if _, err := os.Stat(test); err != nil {
		if _, err := output(ctx, ".", "go", "test", "-c", "-tags", "grpcnotrace", "-trimpath", "-vet=off", "-ldflags=-s -w",
			"-o", test, "./testdata/"+g.folder); err != nil {
			return err
		}
	}
	if g.together {
		var found [2]map[string]float64
		var both sync.WaitGroup
		for i := range c.programs {
			both.Go(func() { found[i] = c.run(ctx, test, g, i) })
		}
		both.Wait()
		c.add(0, found[0], g)
		c.add(1, found[1], g)
		return ctx.Err()
	}
	for n := range c.rounds {
		for _, i := range []int{n % 2, 1 - n%2} {
			c.add(i, c.run(ctx, test, g, i), g)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// run runs a group's benchmark against a program. It prints the output if the benchmark fails or a figure is missing.
func (c *comparison) run(ctx context.Context, test string, g group, program int) map[string]float64 {
	name := []string{"last commit", "now"}[program]
	fmt.Fprintf(os.Stderr, "%s %s: %s\n", time.Now().Format("15:04:05"), name, g.benchmark)
	cmd := exec.CommandContext(ctx, test, "-test.run=^$", "-test.bench=^Benchmark"+g.benchmark, "-test.benchtime="+g.times,
		"-test.timeout=30m")
	cmd.Dir = filepath.Join("testdata", g.folder)
	cmd.Env = append(os.Environ(), harness.Program+"="+c.programs[program])
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // the benchmark stops its servers on SIGTERM
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	found := figures(string(out))
	if err != nil || slices.ContainsFunc(g.rows, func(r row) bool { _, ok := found[r.benchmark+" "+r.unit]; return !ok }) {
		fmt.Fprintf(os.Stderr, "%s: %v\n%s\n", name, err, out)
		if ctx.Err() == nil && !strings.Contains(string(out), "SKIP") {
			c.failed++
		}
	}
	return found
}

// figures parses the output of a benchmark. A key is the benchmark's name, a space and the unit.
func figures(out string) map[string]float64 {
	all := map[string]float64{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		name := cpus.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				all[name+" "+fields[i+1]] = v
			}
		}
	}
	return all
}

// cpus matches the number of CPUs after a benchmark's name.
var cpus = regexp.MustCompile(`-\d+$`)

// add adds a round of a program. A missing figure is NaN.
func (c *comparison) add(program int, found map[string]float64, g group) {
	for _, r := range g.rows {
		v, ok := found[r.benchmark+" "+r.unit]
		if !ok {
			v = math.NaN()
		}
		m := c.measured[r.figure]
		m[program] = append(m[program], v)
		c.measured[r.figure] = m
	}
}

// print prints a row for each figure. The ratio is the median of the rounds' ratios, because other work on the machine
// affects the two measurements of a round in the same way.
func (c *comparison) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 1, ' ', 0)
	fmt.Fprint(w, "| figure\t| last commit\t| now\t| ratio\t|\n|---\t|---\t|---\t|---\t|\n")
	for _, g := range groups {
		for _, r := range g.rows {
			m, ok := c.measured[r.figure]
			if !ok || !c.wanted(r) {
				continue
			}
			ratios := make([]float64, min(len(m[0]), len(m[1])))
			for i := range ratios {
				ratios[i] = m[1][i] / m[0][i]
			}
			fmt.Fprintf(w, "| %s\t| %s\t| %s\t| %s\t|\n", r.figure, short(median(m[0])), short(median(m[1])),
				short(median(ratios)))
		}
	}
	w.Flush()
}

// median returns the median of the finite numbers, or NaN if there are none.
func median(figures []float64) float64 {
	sorted := slices.DeleteFunc(slices.Sorted(slices.Values(figures)),
		func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	if len(sorted) == 0 {
		return math.NaN()
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// short formats a number with three significant digits, or with all digits before the decimal point.
func short(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	digits := 0
	if v > 0 && v < 100 {
		digits = max(0, 2-int(math.Floor(math.Log10(v))))
	}
	whole, rest, point := strings.Cut(strconv.FormatFloat(v, 'f', digits, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + rest
	}
	return whole
}
