package machine_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"monopod/testdata/harness"
)

// BenchmarkRun measures the time until the API and the node of `monopod run` are ready, with containerd.
func BenchmarkRun(b *testing.B) {
	harness.NeedsContainerd(b)
	programs := harness.Build(b)
	said := regexp.MustCompile(`monopod: ready in ([0-9.]+) s`)
	var all []float64
	for b.Loop() {
		out, err := exec.Command(programs.Monopod(harness.Plain), "run", "--", "true").CombinedOutput()
		found := said.FindSubmatch(out)
		if err != nil || found == nil {
			b.Fatalf("%v: %s", err, out)
		}
		seconds, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, seconds*1000)
	}
	slices.Sort(all)
	b.ReportMetric(all[len(all)/2], "ms-p50")
	b.ReportMetric(all[0], "ms-best")
}
