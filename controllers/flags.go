package controllers

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Flags are kube-controller-manager's; the values of c are their defaults.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Controllers, "controllers", c.Controllers, "Controllers to run: * for all that are on by default, NAME to switch one on, -NAME to switch one off.")
	f.IntVar(&c.TerminatedPodGCThreshold, "terminated-pod-gc-threshold", c.TerminatedPodGCThreshold, "Number of terminated pods that can exist before the oldest are deleted. 0: they are never deleted.")
	f.IntVar(&c.ConcurrentReplicaSetSyncs, "concurrent-replicaset-syncs", c.ConcurrentReplicaSetSyncs, "Number of ReplicaSets that are synced concurrently.")
	f.IntVar(&c.ConcurrentNamespaceSyncs, "concurrent-namespace-syncs", c.ConcurrentNamespaceSyncs, "Number of terminating namespaces that are synced concurrently.")
	f.IntVar(&c.ConcurrentGCSyncs, "concurrent-gc-syncs", c.ConcurrentGCSyncs, "Number of objects that the garbage collector syncs concurrently.")
	f.DurationVar(&c.NodeMonitorGracePeriod.Duration, "node-monitor-grace-period", c.NodeMonitorGracePeriod.Duration, "Time without a heartbeat after which a node is marked unhealthy.")
	f.DurationVar(&c.EventTTL.Duration, "event-ttl", c.EventTTL.Duration, "Time to retain events.")
}

// Check says what is wrong with values from the command line.
func (c *Config) Check() error {
	for name, n := range map[string]int{
		"concurrent-replicaset-syncs": c.ConcurrentReplicaSetSyncs, "concurrent-namespace-syncs": c.ConcurrentNamespaceSyncs, "concurrent-gc-syncs": c.ConcurrentGCSyncs,
	} {
		if n < 1 {
			return fmt.Errorf("--%s must be at least 1, got %d", name, n)
		}
	}
	if d := c.NodeMonitorGracePeriod.Duration; d <= 0 {
		return fmt.Errorf("--node-monitor-grace-period must be positive, got %s", d)
	}
	if d := c.EventTTL.Duration; d <= 0 {
		return fmt.Errorf("--event-ttl must be positive, got %s", d)
	}
	return nil
}
