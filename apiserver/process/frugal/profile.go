package frugal

import (
	"os"
	"runtime"
	"strings"
)

// profileEvery is the distance of the allocations that the profile of memory samples, in bytes.
const profileEvery = 4 << 20

// Profile makes the profile of memory coarser than Go's own, whose table takes 1.5 MB in an idle process. It must be
// called once, before other goroutines are started. GODEBUG=memprofilerate=524288 keeps Go's own.
func Profile() {
	if !strings.Contains(os.Getenv("GODEBUG"), "memprofilerate=") {
		runtime.MemProfileRate = profileEvery
	}
}
