package apiserver

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"monopod/testdata/harness"
)

const (
	// counted is the variable with the paths that this program is to do, separated by spaces, while something counts its instructions.
	counted = "MONOPOD_COUNTED"
	// rounds are compared because some contain what does not belong to the path, such as the growth of the heap;
	// callsPerRound are enough for the order of maps, which is random.
	rounds, callsPerRound = 6, 5
)

// TestInstructions keeps what is done most from taking more instructions unnoticed. Virtual machines and containers seldom
// have the processor's counter, so valgrind counts. It shows the program a processor of its own, so that machines differ little.
func TestInstructions(t *testing.T) {
	if names := os.Getenv(counted); names != "" {
		doRounds(t, strings.Fields(names))
		return
	}
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped: the ceilings are those of amd64, and this is " + runtime.GOARCH)
	}
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		t.Skip("skipped: valgrind is not installed: apt-get install valgrind")
	}
	program := harness.BuildTest(t, "apiserver")
	paths := hotPaths()
	left := slices.Sorted(maps.Keys(paths))
	for attempt := range 3 {
		out := filepath.Join(t.ArtifactDir(), "callgrind"+strconv.Itoa(attempt))
		got := countInstructions(t, valgrind, program, out, left)
		var over []string
		for i, name := range left {
			t.Logf("%s: %.0f instructions", name, got[i])
			if got[i] <= paths[name].instructions {
				continue
			}
			if over = append(over, name); attempt == 2 {
				t.Errorf("%s: %.0f instructions, at most %.0f expected: find what takes more, with go test -run Instructions -artifacts and callgrind_annotate %s",
					name, got[i], paths[name].instructions, round(out, i, rounds))
			}
		}
		if left = over; len(left) == 0 {
			return
		}
	}
}

// countInstructions returns how many instructions each of the paths takes: the fewest of all rounds.
func countInstructions(t *testing.T, valgrind, program, out string, names []string) (fewest []float64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), valgrind, "--tool=callgrind", "--callgrind-out-file="+out, "--dump-before=monopod/apiserver.endRound", program, "-test.run=^TestInstructions$")
	// Nothing collects garbage or runs beside the path.
	cmd.Env = append(cmd.Environ(), counted+"="+strings.Join(names, " "), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("valgrind: %v\n%s", err, msg)
	}
	for i := range names {
		n := math.Inf(1)
		for r := range rounds {
			n = min(n, instructions(t, round(out, i, r+1))/callsPerRound)
		}
		fewest = append(fewest, n)
	}
	return fewest
}

// round is valgrind's file of a path's r-th round; that of round 0 has what came before.
func round(out string, path, r int) string { return fmt.Sprintf("%s.%d", out, path*(rounds+1)+r+1) }

// doRounds does the paths while valgrind counts.
func doRounds(t *testing.T, names []string) {
	for _, name := range names {
		// A tenth of random UIDs look like numbers with an exponent, which PATCH checks with care.
		uuid.SetRand(rand.NewChaCha8([32]byte{}))
		do := hotPaths()[name].start(t)
		for n := range 2 * callsPerRound { // what is made on first use
			do(n + 1)
		}
		endRound()
		for range rounds {
			for n := range callsPerRound {
				do(n + 1)
			}
			endRound()
		}
	}
}

// endRound is where valgrind writes down what it has counted since the last time.
//
//go:noinline
func endRound() {}

// instructions returns the sum in a file of valgrind's.
func instructions(t *testing.T, file string) float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if sum, ok := strings.CutPrefix(in.Text(), "totals: "); ok {
			n, err := strconv.ParseFloat(sum, 64)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			return n
		}
	}
	t.Fatalf("%s has no totals", file)
	return 0
}
