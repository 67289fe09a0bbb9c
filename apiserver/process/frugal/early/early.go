// Package early keeps the garbage collector from running while packages are initialised, for a program that imports it:
// they allocate a little more than the 4 MB at which Go collects for the first time, and most of it stays. Pace of package
// frugal sets the collector for a process that stays.
//
// It imports nothing that is not Go's, so that it is initialised before the packages that allocate most: Go initialises
// packages whose imports are ready in the order of their paths, and most of Kubernetes needs sigs.k8s.io.
package early

import (
	"os"
	"runtime/debug"
)

// percent is the growth of the heap before a collection: the first one is at some 10 MB.
const percent = 250

var _ = postpone()

// postpone leaves the setting alone that somebody chose.
func postpone() (before int) {
	if os.Getenv("GOGC") != "" {
		return 0
	}
	return debug.SetGCPercent(percent)
}
