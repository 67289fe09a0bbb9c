package agent

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/pressure/eviction"
)

// configz returns the effective configuration as KubeletConfiguration of kubelet.config.k8s.io/v1beta1. It omits fields
// without a meaning here, and settings that have no field.
func (n *Node) configz() any {
	c, port := &n.cfg.Settings, n.cfg.Port
	out := map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"enableServer": port != 0, "port": port, "enableDebuggingHandlers": c.Kubelet.Debugging,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"staticPodPath": n.path("manifests"), "podLogsDir": n.path("logs", "pods"),
		"clusterDomain": c.Cluster.Domain, "clusterDNS": c.Cluster.DNS, "resolvConf": "/etc/resolv.conf",
		"syncFrequency": "1m0s", "nodeStatusUpdateFrequency": "10s", "nodeStatusReportFrequency": "5m0s",
		"nodeLeaseDurationSeconds": 40,
		"maxPods":                  c.MaxPods, "podPidsLimit": c.Cgroups.MaxPIDs, "cgroupDriver": c.Cgroups.Driver,
		"failSwapOn": false, "memorySwap": map[string]any{"swapBehavior": c.Cgroups.Memory.Swap},
		"memoryReservationPolicy": c.Cgroups.Memory.Reservation,
		"imageMinimumGCAge":       c.Garbage.ImageMinAge.String(), "imageMaximumGCAge": c.Garbage.ImageMaxAge.String(),
		"imageGCHighThresholdPercent": c.Garbage.ImageHigh, "imageGCLowThresholdPercent": c.Garbage.ImageLow,
		"serializeImagePulls":                    !c.Pulls.Parallel,
		"imagePullCredentialsVerificationPolicy": c.Verify.Policy, "preloadedImagesVerificationAllowlist": c.Verify.Listed,
		"containerLogMaxSize": bytes(c.Logs.MaxSize), "containerLogMaxFiles": c.Logs.MaxFiles,
		"containerLogMonitorInterval": c.Logs.Period.String(),
		"cpuManagerPolicy":            c.CPUs.Policy, "cpuManagerPolicyOptions": c.CPUs.Options,
		"cpuManagerReconcilePeriod": c.CPUs.Period.String(),
		"memoryManagerPolicy":       c.Memory.Policy,
		"topologyManagerPolicy":     c.Topology.Policy, "topologyManagerScope": c.Topology.Scope,
		"topologyManagerPolicyOptions": c.Topology.Options,
		"kubeReserved":                 amounts(c.Reserve.KubeReserved), "systemReserved": amounts(c.Reserve.SystemReserved),
		"reservedSystemCPUs": c.Reserve.ReservedCPUs.String(), "enforceNodeAllocatable": c.Reserve.EnforceNodeAllocatable,
		"seccompDefault": c.Security.SeccompDefault, "allowedUnsafeSysctls": c.Security.UnsafeSysctls,
		"shutdownGracePeriod": c.Shutdown.Total.String(), "shutdownGracePeriodCriticalPods": c.Shutdown.Critical.String(),
	}
	if socket := c.Containerd.Socket(); c.Runtime == "containerd" && socket != "" {
		out["containerRuntimeEndpoint"] = socket
	}
	addEvictions(out, c.evictions)
	return out
}

// addEvictions adds the eviction thresholds in the format of the flags.
func addEvictions(out map[string]any, p eviction.Policy) {
	hard, soft, grace, reclaim := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for _, t := range p.Thresholds {
		if t.Soft {
			soft[string(t.Signal)], grace[string(t.Signal)] = threshold(t.Value), t.Grace.String()
		} else {
			hard[string(t.Signal)] = threshold(t.Value)
		}
		if t.Reclaim != (eviction.Value{}) {
			reclaim[string(t.Signal)] = threshold(t.Reclaim)
		}
	}
	out["evictionHard"], out["evictionSoft"] = hard, soft
	out["evictionSoftGracePeriod"], out["evictionMinimumReclaim"] = grace, reclaim
	out["evictionPressureTransitionPeriod"] = p.TransitionPeriod.String()
	out["evictionMaxPodGracePeriod"] = int(p.MaxGrace / time.Second)
}

func threshold(v eviction.Value) string {
	if v.Percent > 0 {
		return strconv.FormatFloat(v.Percent, 'g', -1, 64) + "%"
	}
	return bytes(v.Quantity)
}

func bytes(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

func amounts(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range list {
		out[string(name)] = q.String()
	}
	return out
}
