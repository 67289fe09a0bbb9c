// Package controllers starts the controllers and reports their health.
//
// All is the table of controllers. A Manager starts the controllers that Config enables, restarts failed ones, and
// reports health, metrics and configuration. A new controller is one folder and one entry in All, with its flags.
//
//   - entry.go: an entry of the table, and adapters from a controller's New to the entry's
//   - setting.go: a flag of a controller
//   - manager.go: starts, restarts and stops the enabled controllers
//   - process.go: the controllers of a process: some run on every server, the others on one of the servers that share
//     a state
package controllers

import (
	"context"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/attachdetach"
	"monopod/controllers/bootstraptoken"
	"monopod/controllers/certificates"
	"monopod/controllers/clusterroleaggregation"
	"monopod/controllers/cronjob"
	"monopod/controllers/daemonset"
	"monopod/controllers/deployment"
	"monopod/controllers/devicetaint"
	"monopod/controllers/disruption"
	"monopod/controllers/ephemeral"
	"monopod/controllers/eventttl"
	"monopod/controllers/garbagecollector"
	"monopod/controllers/horizontalpodautoscaler"
	"monopod/controllers/job"
	"monopod/controllers/legacytoken"
	"monopod/controllers/namespace"
	"monopod/controllers/nodelifecycle"
	"monopod/controllers/persistentvolume"
	"monopod/controllers/podgc"
	"monopod/controllers/protection"
	"monopod/controllers/replicaset"
	"monopod/controllers/resourceclaim"
	"monopod/controllers/resourcequota"
	"monopod/controllers/rootca"
	"monopod/controllers/scheduler"
	"monopod/controllers/serviceaccount"
	"monopod/controllers/serviceaccounttoken"
	"monopod/controllers/statefulset"
	"monopod/controllers/storageversionmigrator"
	"monopod/controllers/tainteviction"
	"monopod/controllers/trustbundle"
	"monopod/controllers/ttlafterfinished"
)

// Config of the controllers. The zero value means upstream's defaults, except for TerminatedPodGCThreshold,
// HorizontalPodAutoscalerTolerance and NodeEviction: see Default. /configz serves it.
type Config struct {
	// Controllers is --controllers: "*" enables all controllers that are on by default, "foo" enables foo, "-foo"
	// disables foo; nil means "*".
	Controllers []string `json:"controllers"`
	// TerminatedPodGCThreshold is --terminated-pod-gc-threshold; 0 or less: never.
	TerminatedPodGCThreshold int `json:"terminatedPodGCThreshold"`
	// ConcurrentReplicaSetSyncs is --concurrent-replicaset-syncs; 0 means 5.
	ConcurrentReplicaSetSyncs int `json:"concurrentReplicaSetSyncs"`
	// ConcurrentRCSyncs is --concurrent-rc-syncs; 0 means 5.
	ConcurrentRCSyncs int `json:"concurrentRCSyncs"`
	// ConcurrentDeploymentSyncs is --concurrent-deployment-syncs; 0 means 5.
	ConcurrentDeploymentSyncs int `json:"concurrentDeploymentSyncs"`
	// ConcurrentDaemonSetSyncs is --concurrent-daemonset-syncs; 0 means 2.
	ConcurrentDaemonSetSyncs int `json:"concurrentDaemonSetSyncs"`
	// ConcurrentJobSyncs is --concurrent-job-syncs; 0 means 5.
	ConcurrentJobSyncs int `json:"concurrentJobSyncs"`
	// ConcurrentCronJobSyncs is --concurrent-cron-job-syncs; 0 means 5.
	ConcurrentCronJobSyncs int `json:"concurrentCronJobSyncs"`
	// ConcurrentTTLAfterFinishedSyncs is --concurrent-ttl-after-finished-syncs; 0 means 5.
	ConcurrentTTLAfterFinishedSyncs int `json:"concurrentTTLAfterFinishedSyncs"`
	// ConcurrentStatefulSetSyncs is --concurrent-statefulset-syncs; 0 means 5.
	ConcurrentStatefulSetSyncs int `json:"concurrentStatefulSetSyncs"`
	// ConcurrentNamespaceSyncs is --concurrent-namespace-syncs; 0 means 10.
	ConcurrentNamespaceSyncs int `json:"concurrentNamespaceSyncs"`
	// ConcurrentGCSyncs is --concurrent-gc-syncs; 0 means 20.
	ConcurrentGCSyncs int `json:"concurrentGCSyncs"`
	// ConcurrentHorizontalPodAutoscalerSyncs is --concurrent-horizontal-pod-autoscaler-syncs; 0 means 5.
	ConcurrentHorizontalPodAutoscalerSyncs int `json:"concurrentHorizontalPodAutoscalerSyncs"`
	// The settings of HorizontalPodAutoscalers have flags of the same names; 0 means upstream's default, except for
	// the tolerance.
	HorizontalPodAutoscalerSyncPeriod              metav1.Duration `json:"horizontalPodAutoscalerSyncPeriod"`
	HorizontalPodAutoscalerDownscaleStabilization  metav1.Duration `json:"horizontalPodAutoscalerDownscaleStabilization"`
	HorizontalPodAutoscalerCPUInitializationPeriod metav1.Duration `json:"horizontalPodAutoscalerCPUInitializationPeriod"`
	HorizontalPodAutoscalerInitialReadinessDelay   metav1.Duration `json:"horizontalPodAutoscalerInitialReadinessDelay"`
	HorizontalPodAutoscalerTolerance               float64         `json:"horizontalPodAutoscalerTolerance"`
	// NodeMonitorGracePeriod is --node-monitor-grace-period; 0 means 50 s.
	NodeMonitorGracePeriod metav1.Duration `json:"nodeMonitorGracePeriod"`
	// NodeEviction has the flags --node-eviction-rate, --secondary-node-eviction-rate, --unhealthy-zone-threshold and
	// --large-cluster-size-threshold.
	NodeEviction nodelifecycle.Rates `json:"nodeEviction"`
	// DisableForceDetachOnTimeout is --disable-force-detach-on-timeout.
	DisableForceDetachOnTimeout bool `json:"disableForceDetachOnTimeout"`
	// EventTTL is --event-ttl; 0 means 1 h.
	EventTTL metav1.Duration `json:"eventTTL"`
	// MaxEvents is the maximum number of Events that are kept; 0 means 4096.
	MaxEvents int `json:"maxEvents"`

	// LegacyServiceAccountTokenCleanUpPeriod is --legacy-service-account-token-clean-up-period; 0 means a year.
	LegacyServiceAccountTokenCleanUpPeriod metav1.Duration `json:"legacyServiceAccountTokenCleanUpPeriod"`

	// Services configures the controllers of Services.
	Services Services `json:"services"`
	// NodeIPAM configures the ranges of Nodes.
	NodeIPAM NodeIPAM `json:"nodeIPAM"`

	// ClusterSigningDuration is --cluster-signing-duration; 0 means a year.
	ClusterSigningDuration metav1.Duration `json:"clusterSigningDuration"`

	// Sign signs the certificates of CertificateSigningRequests; Allowed decides which requests are approved.
	Sign    certificates.Authorities `json:"-"`
	Allowed certificates.Allowed     `json:"-"`
	// RootCA is the CA certificate (PEM) that is published in every namespace; empty: none is published.
	RootCA []byte `json:"-"`
	// ClockSet returns a channel that receives when the clock was set or the machine has resumed, until ctx ends. If
	// it is nil, actions at a certain time may be late by the length of a suspend.
	ClockSet func(ctx context.Context) <-chan struct{} `json:"-"`
	// Kinds are the served kinds.
	Kinds client.Kinds `json:"-"`
	// Silent returns the groups and versions of aggregated API servers that do not respond; nil: there are none.
	Silent func() []string `json:"-"`
}

// Default returns upstream's defaults.
func Default() Config {
	c := Config{Controllers: []string{"*"}, MaxEvents: 4096}
	for _, setting := range settings(All(&c)) {
		setting.reset()
	}
	return c
}

// All returns the controllers in the order of their start. Their Settings point into c; their New uses the values that
// c has now.
func All(c *Config) []Entry {
	return append(slices.Concat(generalControllers(c), serviceControllers(c)), nodeIPAMController(c))
}

func generalControllers(c *Config) []Entry {
	return []Entry{
		{Name: scheduler.Name, Aliases: []string{"default-scheduler"}, Component: scheduler.Component,
			New: fullOrError(scheduler.New, scheduler.Config{})},
		{Name: replicaset.Name, Aliases: []string{"replicaset-controller"}, Component: replicaset.Component,
			Settings: []Setting{
				workers(&c.ConcurrentReplicaSetSyncs, "concurrent-replicaset-syncs", 5, "ReplicaSets")},
			New: fullOrError(replicaset.New, replicaset.Config{Workers: c.ConcurrentReplicaSetSyncs})},
		{Name: replicaset.ReplicationControllers, Aliases: []string{"replicationcontroller-controller"},
			Component: replicaset.ReplicationControllersComponent,
			Settings:  []Setting{workers(&c.ConcurrentRCSyncs, "concurrent-rc-syncs", 5, "ReplicationControllers")},
			New: fullOrError(replicaset.NewReplicationControllers,
				replicaset.Config{Workers: c.ConcurrentRCSyncs})},
		{Name: deployment.Name, Aliases: []string{"deployment-controller"}, Component: deployment.Component,
			Settings: []Setting{
				workers(&c.ConcurrentDeploymentSyncs, "concurrent-deployment-syncs", 5, "Deployments")},
			New: full(deployment.New, deployment.Config{Workers: c.ConcurrentDeploymentSyncs})},
		{Name: daemonset.Name, Aliases: []string{"daemonset-controller"}, Component: daemonset.Component,
			Settings: []Setting{workers(&c.ConcurrentDaemonSetSyncs, "concurrent-daemonset-syncs", 2, "DaemonSets")},
			New:      full(daemonset.New, daemonset.Config{Workers: c.ConcurrentDaemonSetSyncs})},
		{Name: job.Name, Aliases: []string{"job-controller"}, Component: job.Component,
			Settings: []Setting{workers(&c.ConcurrentJobSyncs, "concurrent-job-syncs", 5, "Jobs")},
			New:      fullOrError(job.New, job.Config{Workers: c.ConcurrentJobSyncs})},
		{Name: cronjob.Name, Aliases: []string{"cronjob-controller"}, Component: cronjob.Component,
			Settings: []Setting{workers(&c.ConcurrentCronJobSyncs, "concurrent-cron-job-syncs", 5, "CronJobs")},
			New:      fullOrError(cronjob.New, cronjob.Config{Workers: c.ConcurrentCronJobSyncs})},
		{Name: ttlafterfinished.Name, Aliases: []string{"ttl-after-finished-controller"},
			Settings: []Setting{workers(&c.ConcurrentTTLAfterFinishedSyncs, "concurrent-ttl-after-finished-syncs", 5,
				"finished Jobs with a TTL")},
			New: func(d follow.Deps, _ record.Eventer) (follow.Controller, error) {
				return ttlafterfinished.New(d, ttlafterfinished.Config{Workers: c.ConcurrentTTLAfterFinishedSyncs})
			}},
		{Name: statefulset.Name, Aliases: []string{"statefulset-controller"}, Component: statefulset.Component,
			Settings: []Setting{
				workers(&c.ConcurrentStatefulSetSyncs, "concurrent-statefulset-syncs", 5, "StatefulSets")},
			New: full(statefulset.New, statefulset.Config{Workers: c.ConcurrentStatefulSetSyncs})},
		{Name: horizontalpodautoscaler.Name, Aliases: []string{"horizontal-pod-autoscaler-controller"},
			Component: horizontalpodautoscaler.Component,
			Settings:  autoscalerSettings(c),
			New: fullOrError(horizontalpodautoscaler.New, horizontalpodautoscaler.Config{
				Kinds: c.Kinds, Workers: c.ConcurrentHorizontalPodAutoscalerSyncs,
				Settings: horizontalpodautoscaler.Settings{
					SyncPeriod:              c.HorizontalPodAutoscalerSyncPeriod.Duration,
					DownscaleStabilization:  c.HorizontalPodAutoscalerDownscaleStabilization.Duration,
					CPUInitializationPeriod: c.HorizontalPodAutoscalerCPUInitializationPeriod.Duration,
					InitialReadinessDelay:   c.HorizontalPodAutoscalerInitialReadinessDelay.Duration,
					Tolerance:               c.HorizontalPodAutoscalerTolerance,
				}})},
		{Name: serviceaccount.Name, Aliases: []string{"serviceaccount-controller"}, New: simple(serviceaccount.New)},
		{Name: rootca.Name, Aliases: []string{"root-ca-certificate-publisher-controller"},
			New: withConfig(rootca.New, rootca.Config{CA: c.RootCA})},
		{Name: trustbundle.Name, New: withConfig(trustbundle.New, trustbundle.Config{CA: c.RootCA})},
		{Name: nodelifecycle.Name, Aliases: []string{"node-lifecycle-controller"}, Component: nodelifecycle.Component,
			Settings: nodeSettings(c),
			New: full(nodelifecycle.New,
				nodelifecycle.Config{GracePeriod: c.NodeMonitorGracePeriod.Duration, Rates: c.NodeEviction})},
		{Name: tainteviction.Name, Aliases: []string{tainteviction.Component}, Component: tainteviction.Component,
			New: withEvents(tainteviction.New)},
		{Name: namespace.Name, Aliases: []string{"namespace-controller"},
			Settings: []Setting{
				workers(&c.ConcurrentNamespaceSyncs, "concurrent-namespace-syncs", 10, "terminating namespaces")},
			New: withConfig(namespace.New,
				namespace.Config{Kinds: c.Kinds, Silent: c.Silent, Workers: c.ConcurrentNamespaceSyncs})},
		{Name: garbagecollector.Name, Aliases: []string{"garbage-collector-controller"},
			Component: garbagecollector.Component,
			Settings: []Setting{number(&c.ConcurrentGCSyncs, "concurrent-gc-syncs", 20, 1,
				"Number of objects that the garbage collector syncs concurrently.")},
			New: full(garbagecollector.New, garbagecollector.Config{Kinds: c.Kinds, Workers: c.ConcurrentGCSyncs})},
		{Name: podgc.Name, Aliases: []string{"pod-garbage-collector-controller"},
			Settings: []Setting{number(&c.TerminatedPodGCThreshold, "terminated-pod-gc-threshold", 12500, math.MinInt,
				"Number of terminated pods that can exist before the oldest are deleted. 0: they are never deleted.")},
			New: func(d follow.Deps, _ record.Eventer) (follow.Controller, error) {
				return podgc.New(d, podgc.Config{Threshold: c.TerminatedPodGCThreshold})
			}},
		{Name: serviceaccounttoken.Name, Aliases: []string{"serviceaccount-token"},
			New: withConfig(serviceaccounttoken.New, serviceaccounttoken.Config{CA: c.RootCA})},
		{Name: legacytoken.Name, Aliases: []string{"legacy-service-account-token-cleaner"},
			Settings: []Setting{duration(&c.LegacyServiceAccountTokenCleanUpPeriod,
				"legacy-service-account-token-clean-up-period", 365*24*time.Hour,
				"Time without use after which a generated service account token in a Secret becomes invalid, "+
					"and after which the Secret of an invalid one is deleted.")},
			New: withConfig(legacytoken.New,
				legacytoken.Config{Period: c.LegacyServiceAccountTokenCleanUpPeriod.Duration})},
		{Name: bootstraptoken.Cleaner, Aliases: []string{"token-cleaner-controller"},
			New: simple(bootstraptoken.NewCleaner)},
		{Name: bootstraptoken.Signer, Aliases: []string{"bootstrap-signer-controller"},
			New: simple(bootstraptoken.NewSigner)},
		{Name: certificates.Approving, Aliases: []string{"certificatesigningrequest-approving-controller"},
			New: withConfig(certificates.NewApproving, c.Allowed)},
		{Name: certificates.Signing, Aliases: []string{"certificatesigningrequest-signing-controller"},
			Settings: []Setting{duration(&c.ClusterSigningDuration, "cluster-signing-duration", 365*24*time.Hour,
				"Maximum validity of the certificates that are issued for CertificateSigningRequests. A node can request up to "+
					"ten years for its client certificate.")},
			New: func(d follow.Deps, _ record.Eventer) (follow.Controller, error) {
				return certificates.NewSigning(d, c.Sign, c.ClusterSigningDuration.Duration), nil
			}},
		{Name: certificates.Cleaning, Aliases: []string{"certificatesigningrequest-cleaner-controller"},
			New: simple(certificates.NewCleaning)},
		{Name: certificates.PodCleaning, Aliases: []string{"podcertificaterequestcleaner"},
			New: simple(certificates.NewPodCleaning)},
		{Name: clusterroleaggregation.Name, Aliases: []string{"clusterrole-aggregation"},
			New: simple(clusterroleaggregation.New)},
		{Name: resourcequota.Name, Aliases: []string{"resourcequota-controller"},
			New: withConfig(resourcequota.New, resourcequota.Config{Kinds: c.Kinds.Watched()})},
		{Name: persistentvolume.Name, Aliases: []string{"persistentvolume-binder-controller"},
			Component: persistentvolume.Component, New: withEvents(persistentvolume.New)},
		{Name: attachdetach.Name, Aliases: []string{"attachdetach"}, Component: attachdetach.Component,
			Settings: []Setting{toggle(&c.DisableForceDetachOnTimeout, "disable-force-detach-on-timeout",
				"Do not detach a volume from a node that is not ready before the node has unmounted it. By default it is "+
					"detached 6m after its last pod has ended. A node with the taint node.kubernetes.io/out-of-service "+
					"does not delay the detach.")},
			New: fullOrError(attachdetach.New,
				attachdetach.Config{DisableForceDetachOnTimeout: c.DisableForceDetachOnTimeout})},
		{Name: protection.Claims, Aliases: []string{"persistentvolumeclaim-protection-controller"},
			New: simple(protection.NewClaims)},
		{Name: protection.Attributes, New: simple(protection.NewAttributes)},
		{Name: storageversionmigrator.Name, Aliases: []string{"storageversionmigrator"},
			New: withConfig(storageversionmigrator.New, storageversionmigrator.Config{Kinds: c.Kinds.Watched()})},
		{Name: protection.Volumes, Aliases: []string{"persistentvolume-protection-controller"},
			New: simple(protection.NewVolumes)},
		{Name: ephemeral.Name, Aliases: []string{"ephemeral-volume-controller"}, Component: ephemeral.Component,
			New: withEvents(ephemeral.New)},
		{Name: resourceclaim.Name, Aliases: []string{"resource-claim-controller"}, Component: resourceclaim.Component,
			New: func(d follow.Deps, e record.Eventer) (follow.Controller, error) { return resourceclaim.New(d, e) }},
		{Name: devicetaint.Name, Component: devicetaint.Name,
			New: func(d follow.Deps, e record.Eventer) (follow.Controller, error) { return devicetaint.New(d, e) }},
		{Name: disruption.Name, Aliases: []string{"disruption-controller", "poddisruptionbudget"},
			Component: disruption.Component, New: full(disruption.New, c.Kinds)},
		{Name: eventttl.Name, Settings: []Setting{duration(&c.EventTTL, "event-ttl", time.Hour, "Time to retain events.")},
			New: withConfig(eventttl.New, eventttl.Config{TTL: c.EventTTL.Duration, Max: c.MaxEvents})},
	}
}

func autoscalerSettings(c *Config) []Setting {
	return []Setting{
		workers(&c.ConcurrentHorizontalPodAutoscalerSyncs, "concurrent-horizontal-pod-autoscaler-syncs", 5,
			"HorizontalPodAutoscalers"),
		duration(&c.HorizontalPodAutoscalerSyncPeriod, "horizontal-pod-autoscaler-sync-period", 15*time.Second,
			"Time between two evaluations of a HorizontalPodAutoscaler."),
		duration(&c.HorizontalPodAutoscalerDownscaleStabilization, "horizontal-pod-autoscaler-downscale-stabilization",
			5*time.Minute,
			"Time for which a HorizontalPodAutoscaler looks backwards and does not scale down below any of its "+
				"recommendations."),
		share(&c.HorizontalPodAutoscalerTolerance, "horizontal-pod-autoscaler-tolerance", 0.1,
			"Minimum change of the ratio of actual to desired metrics, from 1, for a HorizontalPodAutoscaler to scale."),
		duration(&c.HorizontalPodAutoscalerCPUInitializationPeriod, "horizontal-pod-autoscaler-cpu-initialization-period",
			5*time.Minute, "Time after the start of a pod in which its CPU usage counts only while it is ready."),
		duration(&c.HorizontalPodAutoscalerInitialReadinessDelay, "horizontal-pod-autoscaler-initial-readiness-delay",
			30*time.Second,
			"Time after the start of a pod in which changes of its readiness are treated as part of its start."),
	}
}

func nodeSettings(c *Config) []Setting {
	e := &c.NodeEviction
	return []Setting{
		longer(10*time.Second, &c.NodeMonitorGracePeriod, "node-monitor-grace-period", 50*time.Second,
			"Time without a heartbeat after which a node is marked unhealthy. Nodes send one every 10 s."),
		share(&e.Eviction, "node-eviction-rate", 0.1,
			"Number of nodes per second whose pods are evicted, in a zone in which nodes fail. 0: never."),
		share(&e.Secondary, "secondary-node-eviction-rate", 0.01,
			"Number of nodes per second whose pods are evicted, in a large zone that is unhealthy; in a small one that is "+
				"unhealthy it is 0."),
		share(&e.Unhealthy, "unhealthy-zone-threshold", 0.55,
			"Share of nodes that are not ready, at least 3, from which a zone is unhealthy."),
		number(&e.Large, "large-cluster-size-threshold", 50, 0, "Number of nodes above which a zone is large."),
	}
}
