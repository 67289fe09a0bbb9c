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

// Bound is the timeout of waits that end early unless the program is broken.
const Bound = 10 * time.Minute

// Eventually calls ok, with growing pauses, until it returns true. It returns false after d, or after d times the
// slowness of this machine if that is longer.
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

// Scaled returns d, a time on two idle cores, scaled to the current speed of this machine. Use it for limits of
// measured times.
func Scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * slowness()) }

// maxSlowness limits the duration of a failing test.
const maxSlowness = 10

// slowness returns how many times longer work takes now than on two idle cores, from the speed of a CPU, the number of
// CPUs, and the load.
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
