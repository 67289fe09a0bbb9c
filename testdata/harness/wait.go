package harness

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Enough is what the slowest step of a test takes at most on two idle cores.
const Enough = time.Minute

// Bound ends waits that only a broken program lets come to their end.
const Bound = 10 * time.Minute

// Eventually calls ok, with pauses that grow, until it returns true. It returns
// false when ok did not within d, or within as many times d as this machine is
// slower than two idle cores.
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

// Scaled is d on two idle cores as this machine is now, for figures that a program
// has measured itself.
func Scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * slowness()) }

// maxSlowness bounds how long a test waits that would never pass.
const maxSlowness = 10

// slowness is how much longer than on two idle cores work takes now: by how fast
// one processor counts, by how many there are, and by how much waits for them.
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
