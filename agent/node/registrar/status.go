package registrar

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/node/shutdown"
)

const (
	imagesListed = 50

	// conditionCgroups is set only if pods' cgroups cannot be limited.
	conditionCgroups = corev1.NodeConditionType("CgroupLimitsUnavailable")
	// conditionRestored is set after the state was restored from a snapshot, until the next start.
	conditionRestored = corev1.NodeConditionType("StateRestored")
	// conditionNetwork is set only if the kernel does not enforce Services or NetworkPolicies. It is not upstream's
	// NetworkUnavailable, which keeps pods from the node: pods still start and reach each other.
	conditionNetwork = corev1.NodeConditionType("NetworkDegraded")

	// ImagesNotImported is set while the folder of image archives contains some that cannot be imported.
	ImagesNotImported = corev1.NodeConditionType("ImagesNotImported")
	// StaticPodsInvalid is set while the folder of static pods contains files without a valid pod.
	StaticPodsInvalid = corev1.NodeConditionType("StaticPodsInvalid")
)

// problems are the conditions that Problem sets.
var problems = []corev1.NodeConditionType{ImagesNotImported, StaticPodsInvalid}

// Problem sets a condition of the node with a message, or removes it if the message is empty.
func (r *Registrar) Problem(t corev1.NodeConditionType, message string) {
	r.mu.Lock()
	if r.problems == nil {
		r.problems = map[corev1.NodeConditionType]string{}
	}
	r.problems[t] = message
	r.mu.Unlock()
	r.Poke()
}

// status returns the current status of the node; conditions have no times yet.
func (r *Registrar) status(ctx context.Context) corev1.NodeStatus {
	s := corev1.NodeStatus{NodeInfo: r.info}
	for _, ip := range r.cfg.HostIPs() {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: r.cfg.NodeName})
	s.DaemonEndpoints.KubeletEndpoint.Port = r.cfg.Port
	s.Capacity, s.Allocatable = r.Resources()
	ready := r.readyCondition(ctx)
	if ready.Status == corev1.ConditionTrue {
		r.describe(ctx)
		r.Ready(ctx)
	}
	degraded := r.cfg.Network(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	s.NodeInfo.ContainerRuntimeVersion, s.Images = r.info.ContainerRuntimeVersion, r.images.list
	s.RuntimeHandlers, s.Features = capabilities(r.runtimeStatus)
	s.DeclaredFeatures = []string{restartallcontainers.RestartAllContainersOnContainerExits}
	under := r.Pressure()
	for _, p := range []struct {
		condition        corev1.NodeConditionType
		bad, good, words string
	}{
		{corev1.NodeMemoryPressure, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory", "memory available"},
		{corev1.NodeDiskPressure, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure", "disk space available"},
		{corev1.NodePIDPressure, "KubeletHasInsufficientPID", "KubeletHasSufficientPID", "PID available"},
	} {
		c := corev1.NodeCondition{Type: p.condition, Status: corev1.ConditionFalse, Reason: p.good,
			Message: "monopod has sufficient " + p.words}
		if slices.Contains(under, p.condition) {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, p.bad, "monopod has insufficient "+p.words
		}
		s.Conditions = append(s.Conditions, c)
	}
	s.Conditions = append(s.Conditions, ready)
	if missing := r.cgroupProblems.why(); missing != "" {
		s.Conditions = append(s.Conditions, corev1.NodeCondition{
			Type: conditionCgroups, Status: corev1.ConditionTrue, Reason: "ControllerMissing", Message: missing,
		})
	}
	if degraded != nil {
		s.Conditions = append(s.Conditions, corev1.NodeCondition{
			Type: conditionNetwork, Status: corev1.ConditionTrue, Reason: "NetworkRulesNotApplied", Message: degraded.Error(),
		})
	}
	for _, t := range problems {
		if message := r.problems[t]; message != "" {
			s.Conditions = append(s.Conditions,
				corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue, Reason: "Failed", Message: message})
		}
	}
	if lost := r.cfg.StateRestored; lost != "" {
		s.Conditions = append(s.Conditions, corev1.NodeCondition{
			Type: conditionRestored, Status: corev1.ConditionTrue, Reason: "StateFileDamaged", Message: lost,
		})
	}
	return s
}

// readyCondition derives Ready from the runtime's two conditions.
func (r *Registrar) readyCondition(ctx context.Context) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady"}
	if r.ShuttingDown() {
		c.Message = shutdown.NotReady
		return c
	}
	if err := r.Needs(); err != nil {
		c.Message = fmt.Sprintf("no pod can start: %v", err)
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.HeartbeatPeriod)
	defer cancel()
	resp, err := r.Runtime.Status(ctx)
	if err != nil {
		c.Message = fmt.Sprintf("container runtime is down: %v", err)
		return c
	}
	r.mu.Lock()
	r.runtimeStatus = resp
	r.mu.Unlock()
	status := resp.GetStatus()
	for _, want := range []string{cri.RuntimeReady, cri.NetworkReady} {
		i := slices.IndexFunc(status.Conditions, func(rc *cri.RuntimeCondition) bool { return rc.Type == want })
		if i < 0 {
			c.Message = fmt.Sprintf("container runtime status check may not have completed yet: no %s", want)
			return c
		}
		if rc := status.Conditions[i]; !rc.Status {
			c.Message = fmt.Sprintf("container runtime not ready: %s=false reason:%s message:%s", want, rc.Reason, rc.Message)
			return c
		}
	}
	if err := r.PLEG(); err != nil {
		c.Message = fmt.Sprintf("PLEG is not healthy: %v", err)
		return c
	}
	c.Status, c.Reason, c.Message = corev1.ConditionTrue, "KubeletReady", "monopod is posting ready status"
	return c
}

// describe reads the runtime's version once, and the images when they have changed.
func (r *Registrar) describe(ctx context.Context) {
	r.mu.Lock()
	version, stale := r.info.ContainerRuntimeVersion, r.images.stale
	r.mu.Unlock()
	if version == "" {
		if v, err := r.Runtime.Version(ctx); err == nil {
			version = v.RuntimeName + "://" + v.RuntimeVersion
		}
	}
	var list []corev1.ContainerImage
	if stale {
		all, err := r.Runtime.ListImages(ctx)
		if err == nil {
			list = []corev1.ContainerImage{}
		} else {
			all = nil
		}
		slices.SortFunc(all, func(a, b *cri.Image) int { // the largest first
			return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Id, b.Id))
		})
		for _, img := range all[:min(len(all), imagesListed)] {
			names := slices.Concat(img.RepoDigests, img.RepoTags)
			list = append(list, corev1.ContainerImage{Names: names[:min(len(names), 5)], SizeBytes: int64(img.Size)})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.ContainerRuntimeVersion = version
	if list != nil {
		r.images = images{list: list}
	}
}
