package host

import (
	"fmt"
	"os"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Stalls is pressure stall information (PSI): how long processes waited because a resource was short. nil means that
// the kernel does not have it.
type Stalls struct{ CPU, Memory, IO *statsapi.PSIStats }

// ReadStalls reads the whole machine's.
func ReadStalls() Stalls {
	return StallsOf(func(resource string) string { return "/proc/pressure/" + resource })
}

// StallsOf reads the file of each resource.
func StallsOf(file func(resource string) string) Stalls {
	return Stalls{CPU: stall(file("cpu")), Memory: stall(file("memory")), IO: stall(file("io"))}
}

// stall reads a file with lines such as "some avg10=0.50 avg60=0.00 avg300=0.00 total=1200". A kernel without PSI has
// no such file, or refuses to read it.
func stall(file string) *statsapi.PSIStats {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	out := &statsapi.PSIStats{}
	for line := range strings.Lines(string(text)) {
		var d statsapi.PSIData
		var kind string
		if _, err := fmt.Sscanf(line, "%s avg10=%f avg60=%f avg300=%f total=%d", &kind, &d.Avg10, &d.Avg60, &d.Avg300,
			&d.Total); err != nil {
			return nil
		}
		d.Total *= 1000 // from microseconds to nanoseconds
		if kind == "full" {
			out.Full = d
		} else {
			out.Some = d
		}
	}
	return out
}
