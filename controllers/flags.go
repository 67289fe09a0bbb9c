package controllers

import "github.com/spf13/pflag"

// Flags are kube-controller-manager's; the values of c are their defaults.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Controllers, "controllers", c.Controllers, "Controllers to run: * for all that are on by default, NAME to switch one on, -NAME to switch one off.")
	f.IntVar(&c.TerminatedPodGCThreshold, "terminated-pod-gc-threshold", c.TerminatedPodGCThreshold, "Number of terminated pods that can exist before the oldest are deleted. 0: they are never deleted.")
	f.IntVar(&c.ConcurrentReplicaSetSyncs, "concurrent-replicaset-syncs", c.ConcurrentReplicaSetSyncs, "Number of ReplicaSets that are synced concurrently.")
}
