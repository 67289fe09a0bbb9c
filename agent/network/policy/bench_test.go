package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"monopod/agent/network/networktest"
)

// BenchmarkLabel has 100 pods and 20 policies that name peers by labels, one of which comes and goes: it reports the
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
		var took [2][]time.Duration // the label comes, and goes
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

// label adds a label that policies name to a pod, or for an odd i removes it, and returns how long the kernel took.
func (c *cluster) label(t testing.TB, i int) time.Duration {
	began := time.Now()
	c.pod(0, "one", []string{"role=caller", "role=none"}[i%2])
	c.sync(t)
	return time.Since(began)
}

// TestRemovalsDoNotWait compares transactions that remove elements of a set with those that add them: the kernel frees
// what is removed after an RCU grace period of more than 10 ms, but no caller waits for it.
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
			t.Errorf("an element is removed in %s, and added in %s", removed, added)
		}
	})
}
