package fake

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// The usage of a container is the sum over its running simulated processes; CPU time of earlier processes still counts.
func TestMeter(t *testing.T) {
	t.Parallel()
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	var m meter
	if m.read(c.Now()) != nil {
		t.Error("usage before the first process")
	}
	stop := m.add(c, 250e6, 0)
	c.Step(10 * time.Second)
	release := m.add(c, 100e6, 1<<20)
	c.Step(10 * time.Second)
	check := func(seconds float64, cores, memory uint64) {
		t.Helper()
		s := m.read(c.Now())
		if got := float64(s.Cpu.UsageCoreNanoSeconds.Value) / 1e9; got != seconds || s.Cpu.UsageNanoCores.Value != cores ||
			s.Memory.WorkingSetBytes.Value != memory {
			t.Errorf("%v s, %v, want %v s, %d nanocores, %d bytes", got, s, seconds, cores, memory)
		}
	}
	check(6, 350e6, 1<<20)
	stop()
	c.Step(10 * time.Second)
	check(7, 100e6, 1<<20)
	release()
	c.Step(time.Hour)
	check(7, 0, 0)
}
