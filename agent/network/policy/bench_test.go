package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"monopod/agent/network/networktest"
)

// BenchmarkLabel adds and removes a label of one of 100 pods, which selects it as a peer of 20 policies. It reports the
// time until the kernel has the change.
func BenchmarkLabel(b *testing.B) {
	newCluster(b, networktest.Config{Pods: 1}, func(c *cluster) {
		c.space("one")
		for i := range 100 {
			p := podObject(c.Pods[0], "one", fmt.Sprintf("app=%d", i%20))
			p.Name = fmt.Sprint("pod", i)
			p.Status.PodIPs[0].IP, p.Status.PodIPs[1].IP = fmt.Sprintf("10.88.1.%d", i+1), fmt.Sprintf("fd88::1:%x", i+1)
			c.SetPod(key("one", p.Name), Of(p))
		}
		for i := range 20 {
			c.SetPolicy(key("one", fmt.Sprint(i)), policyOf(b, "one", fmt.Sprint(i), fmt.Sprintf(
				"{podSelector: {matchLabels: {app: '%d'}}, ingress: [{from: [{podSelector: {matchLabels: {role: caller}}}], "+
					"ports: [{port: web}]}]}", i)))
		}
		c.sync(b)
		var took [2][]time.Duration // of additions and removals
		for i := 0; b.Loop(); i++ {
			took[i%2] = append(took[i%2], c.label(b, i))
		}
		for i, unit := range []string{"ms-added", "ms-removed"} {
			if n := len(took[i]); n > 0 {
				slices.Sort(took[i])
				b.ReportMetric(float64(took[i][n/2].Microseconds())/1000, unit)
			}
		}
	})
}

// label adds a label that policies select to a pod, or removes it if i is odd, and returns the time until the kernel
// has the change.
func (c *cluster) label(t testing.TB, i int) time.Duration {
	began := time.Now()
	c.pod(0, "one", []string{"role=caller", "role=none"}[i%2])
	c.sync(t)
	return time.Since(began)
}

// TestRemovalsDoNotWait compares transactions that remove elements of a set with those that add elements. The kernel
// frees removed elements after an RCU grace period of more than 10 ms, but must not delay the caller.
func TestRemovalsDoNotWait(t *testing.T) {
	t.Parallel()
	newCluster(t, networktest.Config{Pods: 1}, func(c *cluster) {
		c.space("one")
		c.SetPolicy(key("one", "p"), policyOf(t, "one", "p",
			"{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {role: caller}}}]}]}"))
		c.label(t, 1)
		var took [2][]time.Duration
		for i := range 60 {
			took[i%2] = append(took[i%2], c.label(t, i))
		}
		median := func(of []time.Duration) time.Duration { slices.Sort(of); return of[len(of)/2] }
		if added, removed := median(took[0]), median(took[1]); removed > 10*added {
			t.Errorf("the removal of an element takes %s, an addition %s", removed, added)
		}
	})
}
