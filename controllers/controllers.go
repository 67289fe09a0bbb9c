// Package controllers starts the controllers and reports their health.
//
// All is the table of controllers. A Manager starts those that Config enables, restarts the ones that fail, and
// reports health, metrics and configuration. Adding a controller is one folder and one entry in All, with its
// flags.
//
//   - process.go: runs the controllers of a process: some on every server, the others on one of the servers that share
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

// Config of the controllers. The zero value has upstream's defaults, except TerminatedPodGCThreshold,
// HorizontalPodAutoscalerTolerance and NodeEviction: see Default. /configz shows it.
type Config struct {
	// Controllers is --controllers: "*" enables all that are on by default, "foo" enables foo, "-foo" disables
	// it; nil means "*".
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
	// The settings of HorizontalPodAutoscalers have flags of the same names; 0 means upstream's default, except
	// for the tolerance.
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
	// EventTTL is --event-ttl; 0 means 1 h. MaxEvents are kept at most; 0 means 4096.
	EventTTL  metav1.Duration `json:"eventTTL"`
	MaxEvents int             `json:"maxEvents"`

	// LegacyServiceAccountTokenCleanUpPeriod is --legacy-service-account-token-clean-up-period; 0 means a year.
	LegacyServiceAccountTokenCleanUpPeriod metav1.Duration `json:"legacyServiceAccountTokenCleanUpPeriod"`

	// Services are the controllers of Services' endpoints.
	Services Services `json:"services"`

	// ClusterSigningDuration is --cluster-signing-duration; 0 means a year.
	ClusterSigningDuration metav1.Duration `json:"clusterSigningDuration"`

	// Sign and Allowed serve CertificateSigningRequests: the authority, and what users may request.
	Sign    certificates.Sign    `json:"-"`
	Allowed certificates.Allowed `json:"-"`
	// RootCA is published in every namespace, PEM; empty: not published.
	RootCA []byte `json:"-"`
	// ClockSet sends when the clock was set or the machine has slept, until ctx ends; nil:
	// what is due at a time may come as late as that.
	ClockSet func(ctx context.Context) <-chan struct{} `json:"-"`
	// Kinds are the served kinds.
	Kinds client.Kinds `json:"-"`
	// Silent returns the groups and versions whose servers do not answer; nil: there are no other servers.
	Silent func() []string `json:"-"`
}

// Default returns upstream's defaults.
func Default() Config {
	c := Config{Controllers: []string{"*"}, MaxEvents: 4096}
	for _, setting := range c.settings(All()) {
		setting.reset()
	}
	return c
}

// Entry is one controller.
type Entry struct {
	Name string
	// Aliases are upstream's other names of it, which --controllers accepts.
	Aliases []string
	// Off: "*" does not enable it.
	Off bool
	// Component is the source of the controller's events; empty: it writes none.
	Component string
	// Settings returns its flags, each for a value in c; nil: none.
	Settings func(c *Config) []Setting

	New func(deps follow.Deps, events record.Eventer, cfg Config) (follow.Controller, error)
}

// All lists the controllers in the order of their start.
func All() []Entry {
	return slices.Concat(controllers(), serviceControllers())
}

func controllers() []Entry {
	return []Entry{
		{Name: scheduler.Name, Aliases: []string{"default-scheduler"}, Component: scheduler.Component,
			New: func(d follow.Deps, e record.Eventer, _ Config) (follow.Controller, error) {
				return scheduler.New(d, e, scheduler.Config{})
			}},
		{Name: replicaset.Name, Aliases: []string{"replicaset-controller"}, Component: replicaset.Component,
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentReplicaSetSyncs, "concurrent-replicaset-syncs", 5, 1,
					"Number of ReplicaSets that are synced concurrently.")}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return replicaset.New(d, e, replicaset.Config{Workers: c.ConcurrentReplicaSetSyncs})
			}},
		{Name: replicaset.ReplicationControllers, Aliases: []string{"replicationcontroller-controller"},
			Component: replicaset.ReplicationControllersComponent,
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentRCSyncs, "concurrent-rc-syncs", 5, 1,
					"Number of ReplicationControllers that are synced concurrently.")}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return replicaset.NewReplicationControllers(d, e, replicaset.Config{Workers: c.ConcurrentRCSyncs})
			}},
		{Name: deployment.Name, Aliases: []string{"deployment-controller"}, Component: deployment.Component,
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentDeploymentSyncs, "concurrent-deployment-syncs", 5, 1,
					"Number of Deployments that are synced concurrently.")}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return deployment.New(d, e, deployment.Config{Workers: c.ConcurrentDeploymentSyncs}), nil
			}},
		{Name: daemonset.Name, Aliases: []string{"daemonset-controller"}, Component: daemonset.Component,
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentDaemonSetSyncs, "concurrent-daemonset-syncs", 2, 1,
					"Number of DaemonSets that are synced concurrently.")}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return daemonset.New(d, e, daemonset.Config{Workers: c.ConcurrentDaemonSetSyncs}), nil
			}},
		{Name: job.Name, Aliases: []string{"job-controller"}, Component: job.Component,
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentJobSyncs, "concurrent-job-syncs", 5, 1,
					"Number of Jobs that are synced concurrently.")}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return job.New(d, e, job.Config{Workers: c.ConcurrentJobSyncs})
			}},
		{Name: cronjob.Name, Aliases: []string{"cronjob-controller"}, Component: cronjob.Component,
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentCronJobSyncs, "concurrent-cron-job-syncs", 5, 1,
					"Number of CronJobs that are synced concurrently.")}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return cronjob.New(d, e, cronjob.Config{Workers: c.ConcurrentCronJobSyncs})
			}},
		{Name: ttlafterfinished.Name, Aliases: []string{"ttl-after-finished-controller"},
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentTTLAfterFinishedSyncs, "concurrent-ttl-after-finished-syncs", 5, 1,
					"Number of finished Jobs with a TTL that are synced concurrently.")}
			},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return ttlafterfinished.New(d, ttlafterfinished.Config{Workers: c.ConcurrentTTLAfterFinishedSyncs})
			}},
		{Name: statefulset.Name, Aliases: []string{"statefulset-controller"}, Component: statefulset.Component,
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentStatefulSetSyncs, "concurrent-statefulset-syncs", 5, 1,
					"Number of StatefulSets that are synced concurrently.")}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return statefulset.New(d, e, statefulset.Config{Workers: c.ConcurrentStatefulSetSyncs}), nil
			}},
		{Name: horizontalpodautoscaler.Name, Aliases: []string{"horizontal-pod-autoscaler-controller"},
			Component: horizontalpodautoscaler.Component,
			Settings:  autoscalerSettings,
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return horizontalpodautoscaler.New(d, e, horizontalpodautoscaler.Config{
					Kinds: c.Kinds, Workers: c.ConcurrentHorizontalPodAutoscalerSyncs, Settings: horizontalpodautoscaler.Settings{
						SyncPeriod:              c.HorizontalPodAutoscalerSyncPeriod.Duration,
						DownscaleStabilization:  c.HorizontalPodAutoscalerDownscaleStabilization.Duration,
						CPUInitializationPeriod: c.HorizontalPodAutoscalerCPUInitializationPeriod.Duration,
						InitialReadinessDelay:   c.HorizontalPodAutoscalerInitialReadinessDelay.Duration,
						Tolerance:               c.HorizontalPodAutoscalerTolerance,
					}})
			}},
		{Name: serviceaccount.Name, Aliases: []string{"serviceaccount-controller"},
			New: func(d follow.Deps, _ record.Eventer, _ Config) (follow.Controller, error) {
				return serviceaccount.New(d), nil
			}},
		{Name: rootca.Name, Aliases: []string{"root-ca-certificate-publisher-controller"},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return rootca.New(d, rootca.Config{CA: c.RootCA}), nil
			}},
		{Name: trustbundle.Name,
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return trustbundle.New(d, trustbundle.Config{CA: c.RootCA}), nil
			}},
		{Name: nodelifecycle.Name, Aliases: []string{"node-lifecycle-controller"}, Component: nodelifecycle.Component,
			Settings: nodeSettings,
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return nodelifecycle.New(d, e,
					nodelifecycle.Config{GracePeriod: c.NodeMonitorGracePeriod.Duration, Rates: c.NodeEviction}), nil
			}},
		{Name: tainteviction.Name, Aliases: []string{tainteviction.Component}, Component: tainteviction.Component,
			New: func(d follow.Deps, e record.Eventer, _ Config) (follow.Controller, error) {
				return tainteviction.New(d, e), nil
			}},
		{Name: namespace.Name, Aliases: []string{"namespace-controller"},
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentNamespaceSyncs, "concurrent-namespace-syncs", 10, 1,
					"Number of terminating namespaces that are synced concurrently.")}
			},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return namespace.New(d, namespace.Config{Kinds: c.Kinds, Silent: c.Silent, Workers: c.ConcurrentNamespaceSyncs}),
					nil
			}},
		{Name: garbagecollector.Name, Aliases: []string{"garbage-collector-controller"},
			Component: garbagecollector.Component,
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.ConcurrentGCSyncs, "concurrent-gc-syncs", 20, 1,
					"Number of objects that the garbage collector syncs concurrently.")}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return garbagecollector.New(d, e, garbagecollector.Config{Kinds: c.Kinds, Workers: c.ConcurrentGCSyncs}), nil
			}},
		{Name: podgc.Name, Aliases: []string{"pod-garbage-collector-controller"},
			Settings: func(c *Config) []Setting {
				return []Setting{number(&c.TerminatedPodGCThreshold, "terminated-pod-gc-threshold", 12500, math.MinInt,
					"Number of terminated pods that can exist before the oldest are deleted. 0: they are never deleted.")}
			},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return podgc.New(d, podgc.Config{Threshold: c.TerminatedPodGCThreshold})
			}},
		{Name: serviceaccounttoken.Name, Aliases: []string{"serviceaccount-token"},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return serviceaccounttoken.New(d, serviceaccounttoken.Config{CA: c.RootCA}), nil
			}},
		{Name: legacytoken.Name, Aliases: []string{"legacy-service-account-token-cleaner"},
			Settings: func(c *Config) []Setting {
				return []Setting{duration(&c.LegacyServiceAccountTokenCleanUpPeriod, "legacy-service-account-token-clean-up-period",
					365*24*time.Hour,
					"Time without use after which a generated service account token in a Secret becomes invalid, and after which the Secret of an invalid one is deleted.")}
			},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return legacytoken.New(d, legacytoken.Config{Period: c.LegacyServiceAccountTokenCleanUpPeriod.Duration}), nil
			}},
		{Name: bootstraptoken.Cleaner, Aliases: []string{"token-cleaner-controller"},
			New: func(d follow.Deps, _ record.Eventer, _ Config) (follow.Controller, error) {
				return bootstraptoken.NewCleaner(d), nil
			}},
		{Name: bootstraptoken.Signer, Aliases: []string{"bootstrap-signer-controller"},
			New: func(d follow.Deps, _ record.Eventer, _ Config) (follow.Controller, error) {
				return bootstraptoken.NewSigner(d), nil
			}},
		{Name: certificates.Approving, Aliases: []string{"certificatesigningrequest-approving-controller"},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return certificates.NewApproving(d, c.Allowed), nil
			}},
		{Name: certificates.Signing, Aliases: []string{"certificatesigningrequest-signing-controller"},
			Settings: func(c *Config) []Setting {
				return []Setting{duration(&c.ClusterSigningDuration, "cluster-signing-duration", 365*24*time.Hour,
					"Maximum validity of the certificates that are issued for CertificateSigningRequests.")}
			},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return certificates.NewSigning(d, c.Sign, c.ClusterSigningDuration.Duration), nil
			}},
		{Name: certificates.Cleaning, Aliases: []string{"certificatesigningrequest-cleaner-controller"},
			New: func(d follow.Deps, _ record.Eventer, _ Config) (follow.Controller, error) {
				return certificates.NewCleaning(d), nil
			}},
		{Name: certificates.PodCleaning, Aliases: []string{"podcertificaterequestcleaner"},
			New: func(d follow.Deps, _ record.Eventer, _ Config) (follow.Controller, error) {
				return certificates.NewPodCleaning(d), nil
			}},
		{Name: clusterroleaggregation.Name, Aliases: []string{"clusterrole-aggregation"},
			New: func(d follow.Deps, _ record.Eventer, _ Config) (follow.Controller, error) {
				return clusterroleaggregation.New(d), nil
			}},
		{Name: resourcequota.Name, Aliases: []string{"resourcequota-controller"},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return resourcequota.New(d, resourcequota.Config{Kinds: c.Kinds.Watched()}), nil
			}},
		{Name: persistentvolume.Name, Aliases: []string{"persistentvolume-binder-controller"},
			Component: persistentvolume.Component,
			New: func(d follow.Deps, e record.Eventer, _ Config) (follow.Controller, error) {
				return persistentvolume.New(d, e), nil
			}},
		{Name: protection.Claims, Aliases: []string{"persistentvolumeclaim-protection-controller"},
			New: func(d follow.Deps, _ record.Eventer, _ Config) (follow.Controller, error) {
				return protection.NewClaims(d), nil
			}},
		{Name: protection.Attributes,
			New: func(d follow.Deps, _ record.Eventer, _ Config) (follow.Controller, error) {
				return protection.NewAttributes(d), nil
			}},
		{Name: storageversionmigrator.Name, Aliases: []string{"storageversionmigrator"},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return storageversionmigrator.New(d, storageversionmigrator.Config{Kinds: c.Kinds.Watched()}), nil
			}},
		{Name: protection.Volumes, Aliases: []string{"persistentvolume-protection-controller"},
			New: func(d follow.Deps, _ record.Eventer, _ Config) (follow.Controller, error) {
				return protection.NewVolumes(d), nil
			}},
		{Name: ephemeral.Name, Aliases: []string{"ephemeral-volume-controller"}, Component: ephemeral.Component,
			New: func(d follow.Deps, e record.Eventer, _ Config) (follow.Controller, error) {
				return ephemeral.New(d, e), nil
			}},
		{Name: resourceclaim.Name, Aliases: []string{"resource-claim-controller"}, Component: resourceclaim.Component,
			New: func(d follow.Deps, e record.Eventer, _ Config) (follow.Controller, error) {
				return resourceclaim.New(d, e)
			}},
		{Name: devicetaint.Name, Component: devicetaint.Name,
			New: func(d follow.Deps, e record.Eventer, _ Config) (follow.Controller, error) {
				return devicetaint.New(d, e)
			}},
		{Name: disruption.Name, Aliases: []string{"disruption-controller", "poddisruptionbudget"},
			Component: disruption.Component,
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return disruption.New(d, e, c.Kinds), nil
			}},
		{Name: eventttl.Name,
			Settings: func(c *Config) []Setting {
				return []Setting{duration(&c.EventTTL, "event-ttl", time.Hour, "Time to retain events.")}
			},
			New: func(d follow.Deps, _ record.Eventer, c Config) (follow.Controller, error) {
				return eventttl.New(d, eventttl.Config{TTL: c.EventTTL.Duration, Max: c.MaxEvents}), nil
			}},
	}
}

// autoscalerSettings are the flags of HorizontalPodAutoscalers.
func autoscalerSettings(c *Config) []Setting {
	return []Setting{
		number(&c.ConcurrentHorizontalPodAutoscalerSyncs, "concurrent-horizontal-pod-autoscaler-syncs", 5, 1,
			"Number of HorizontalPodAutoscalers that are synced concurrently."),
		duration(&c.HorizontalPodAutoscalerSyncPeriod, "horizontal-pod-autoscaler-sync-period", 15*time.Second,
			"Time between two evaluations of a HorizontalPodAutoscaler."),
		duration(&c.HorizontalPodAutoscalerDownscaleStabilization, "horizontal-pod-autoscaler-downscale-stabilization",
			5*time.Minute,
			"Time for which a HorizontalPodAutoscaler looks backwards and does not scale down below any of its recommendations."),
		share(&c.HorizontalPodAutoscalerTolerance, "horizontal-pod-autoscaler-tolerance", 0.1,
			"Minimum change of the ratio of actual to desired metrics, from 1, for a HorizontalPodAutoscaler to scale."),
		duration(&c.HorizontalPodAutoscalerCPUInitializationPeriod, "horizontal-pod-autoscaler-cpu-initialization-period",
			5*time.Minute, "Time after the start of a pod in which its CPU usage counts only while it is ready."),
		duration(&c.HorizontalPodAutoscalerInitialReadinessDelay, "horizontal-pod-autoscaler-initial-readiness-delay",
			30*time.Second, "Time after the start of a pod in which changes of its readiness are treated as part of its start."),
	}
}

func nodeSettings(c *Config) []Setting {
	e := &c.NodeEviction
	return []Setting{
		duration(&c.NodeMonitorGracePeriod, "node-monitor-grace-period", 50*time.Second,
			"Time without a heartbeat after which a node is marked unhealthy."),
		share(&e.Eviction, "node-eviction-rate", 0.1,
			"Number of nodes per second whose pods are evicted, in a zone in which nodes fail. 0: never."),
		share(&e.Secondary, "secondary-node-eviction-rate", 0.01,
			"Number of nodes per second whose pods are evicted, in a large zone that is unhealthy; in a small one that is unhealthy it is 0."),
		share(&e.Unhealthy, "unhealthy-zone-threshold", 0.55,
			"Share of nodes that are not ready, at least 3, from which a zone is unhealthy."),
		number(&e.Large, "large-cluster-size-threshold", 50, 0, "Number of nodes above which a zone is large."),
	}
}
