package eviction_test

import (
	"testing"

	"monopod/agent/pressure/eviction"
)

func TestUntilThreshold(t *testing.T) {
	t.Parallel()
	options := eviction.Options{Hard: map[string]string{"memory.available": "100", "nodefs.available": "900"},
		Soft: map[string]string{"memory.available": "30%"}, SoftGrace: map[string]string{"memory.available": "1s"}}
	policy, err := options.Policy()
	if err != nil {
		t.Fatal(err)
	}
	for free, want := range map[int64]int64{1000: 700, 301: 1, 300: 200, 101: 1, 100: 0, 0: 0} {
		if got := policy.UntilThreshold(
			eviction.Observations{eviction.Memory: {Total: 1000, Free: free},
				eviction.NodeFs: {Total: 1000, Free: 950}}); got != want {
			t.Errorf("with %d available: %d, want %d", free, got, want)
		}
	}
	if got := policy.UntilThreshold(nil); got != 0 {
		t.Errorf("without observations: %d", got)
	}
	if got := (eviction.Policy{}).UntilThreshold(eviction.Observations{eviction.Memory: {Total: 10, Free: 5}}); got != 0 {
		t.Errorf("without a threshold: %d", got)
	}
}
