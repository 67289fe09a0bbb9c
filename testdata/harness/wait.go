package harness

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Enough is the maximum time of the slowest step of a test on two idle cores.
const Enough = time.Minute

// Bound ends waits that only end in a broken program.
const Bound = 10 * time.Minute

// Eventually calls ok, with growing pauses, until it returns true. It returns false if ok did not within d, or
// within d times the slowness of this machine compared with two idle cores.
func Eventually(d time.Duration, ok func() bool) bool {
	began, bound := time.Now(), d
	for pause := time.Millisecond; !ok(); pause = min(pause*3/2, 250*time.Millisecond) {
		if time.Since(began) > bound {
			if slow := time.Duration(float64(d) * slowness()); slow > bound {
				bound = slow
				continue
			}
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// Scaled returns d, a time on two idle cores, scaled to the current speed of this machine, for times that a
// program has measured itself.
func Scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * slowness()) }

// maxSlowness limits how long a failing test waits.
const maxSlowness = 10

// slowness is how much longer work takes now than on two idle cores: by the speed of one CPU, their number, and
// the load.
func slowness() float64 {
	const rounds, usual = 20_000_000, 20 * time.Millisecond
	began, sum := time.Now(), uint64(1)
	for range rounds {
		sum = sum*6364136223846793005 + 1442695040888963407
	}
	runtime.KeepAlive(sum)
	speed := max(1, float64(time.Since(began))/float64(usual))
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _ = strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	}
	cores := float64(runtime.NumCPU())
	return min(maxSlowness, speed*max(1, 2/cores, load/cores))
}
