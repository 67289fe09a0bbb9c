package placement

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	reg "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"monopod/agent/host/checkpoint"
	"monopod/agent/resources/dra"
	"monopod/agent/resources/plugins"
)

// newClaims creates the DRA manager, unless the config disables plugins.
func (p *Placement) newClaims() error {
	cfg := &p.cfg
	if cfg.Plugins == "" || cfg.Devices.Dir == "" {
		return nil
	}
	p.plugins.claims = dra.New(dra.Config{
		API: cfg.Claims, File: checkpoint.File(filepath.Join(cfg.DataDir, "dra_manager_state")), Clock: p.Clock, Log: p.Log,
		Dial: plugins.Dial, Health: p.wake, Guard: p.Guard,
		Registered: func(string) { // pods may wait for the driver
			for _, pod := range p.Pods() {
				if hasClaims(pod.Object()) {
					pod.Wake()
				}
			}
		},
	})
	return p.Metrics.Register(p.plugins.claims.Metrics())
}

// watchPlugins registers device plugins and DRA drivers until ctx ends.
func (p *Placement) watchPlugins(ctx context.Context) {
	dial := p.cfg.Devices.Dial
	if dial == nil {
		dial = plugins.Dial
	}
	w := plugins.Watcher{
		Dir: p.cfg.Plugins, Dial: dial, Clock: p.Clock, Log: p.Log, Guard: p.Guard,
		Handlers: map[string]plugins.Handler{reg.DevicePlugin: p.plugins.devices.Welcome,
			reg.DRAPlugin: p.plugins.claims.Welcome, reg.CSIPlugin: p.cfg.CSI},
	}
	w.Run(ctx)
}

// hasClaims reports whether a pod uses resource claims.
func hasClaims(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// PrepareClaims makes the DRA drivers prepare the pod's resource claims. The error wraps a *dra.Absent if a driver is
// not registered.
func (p *Placement) PrepareClaims(ctx context.Context, pod *corev1.Pod) error {
	if p.plugins.claims == nil || !hasClaims(pod) {
		return nil
	}
	return p.plugins.claims.Prepare(ctx, pod)
}

// UnprepareClaims makes the DRA drivers release the resource claims of a pod whose containers are dead.
func (p *Placement) UnprepareClaims(ctx context.Context, uid types.UID) error {
	if p.plugins.claims == nil {
		return nil
	}
	return p.plugins.claims.Unprepare(ctx, uid)
}

// HoldsClaims reports whether UnprepareClaims must be called for the pod.
func (p *Placement) HoldsClaims(uid types.UID) bool {
	return p.plugins.claims != nil && p.plugins.claims.Holds(uid)
}
