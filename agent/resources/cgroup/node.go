package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// Prepare creates the cgroup of all pods, with the limits all, and the cgroups of the QoS classes. BestEffort pods get
// only CPU time that no other pod needs.
func (m *Manager) Prepare(all Limits) error {
	var errs []error
	pods := m.name(corev1.PodQOSGuaranteed)
	for i := 1; i < len(pods); i++ { // the parents of kubepods get the same shares
		errs = append(errs, m.set(pods[:i], Limits{Shares: all.Shares}))
	}
	all.Protection = &Protection{} // an earlier process may have set it
	errs = append(errs, m.set(pods, all),
		m.set(m.name(corev1.PodQOSBestEffort), Limits{Shares: spec.Shares(0)}))
	m.sumsMu.Lock()
	m.sums = sums{} // the cgroup of the class may have been removed
	m.sumsMu.Unlock()
	return errors.Join(append(errs, m.updateSums())...)
}

// LimitsSwap reports whether the kernel can limit the swap that containers use: on v2, if it was built for it.
func (m *Manager) LimitsSwap() bool {
	_, err := os.Stat(filepath.Join(m.Mount, m.dir(m.name(corev1.PodQOSGuaranteed)), "memory.swap.max"))
	return m.v2 && err == nil
}

// Adopt adds the pod's requests to those of all pods. Create also does this; Adopt is for pods that an earlier agent
// admitted.
func (m *Manager) Adopt(pod *corev1.Pod) error {
	class := status.QOS(pod)
	if class == corev1.PodQOSBestEffort || class == corev1.PodQOSGuaranteed && !m.Protect {
		return nil
	}
	of := resource.PodRequests(pod, resource.PodResourcesOptions{})
	m.mu.Lock()
	m.held[pod.UID] = requests{class, of.Cpu().MilliValue(), of.Memory().Value()}
	m.mu.Unlock()
	return m.updateSums()
}

// release subtracts the pod's requests from those of all pods.
func (m *Manager) release(uid types.UID) error {
	m.mu.Lock()
	_, held := m.held[uid]
	delete(m.held, uid)
	m.mu.Unlock()
	if !held {
		return nil
	}
	return m.updateSums()
}

// updateSums writes the shares of the Burstable class and the memory that pods request, if they changed. The kernel
// keeps memory for a pod only if all cgroups above it have at least as much.
func (m *Manager) updateSums() error {
	m.sumsMu.Lock()
	defer m.sumsMu.Unlock()
	var milli int64
	var memory Protection
	m.mu.Lock()
	for _, of := range m.held {
		if of.class == corev1.PodQOSBurstable {
			milli += of.milli
		}
		p := protectionOf(of.class, of.memory)
		memory = Protection{memory.Min + p.Min, memory.Low + p.Low}
	}
	m.mu.Unlock()
	want := sums{shares: spec.Shares(milli)}
	burstable := Limits{Shares: want.shares}
	var errs []error
	if m.Protect {
		want.memory, burstable.Protection = memory, &Protection{Low: memory.Low}
	}
	if want == m.sums {
		return nil
	}
	if pods := m.name(corev1.PodQOSGuaranteed); m.Protect {
		for i := range pods {
			errs = append(errs, m.set(pods[:i+1], Limits{Protection: &memory}))
		}
	}
	err := errors.Join(append(errs, m.set(m.name(corev1.PodQOSBurstable), burstable))...)
	if err == nil {
		m.sums = want
	}
	return err
}

// Limit sets the limits of an existing cgroup that Monopod does not manage.
func (m *Manager) Limit(cgroup string, l Limits) error {
	dir, unit := filepath.Clean("/"+cgroup), ""
	if m.Units != nil {
		unit = filepath.Base(dir)
		if !strings.HasSuffix(unit, ".slice") {
			unit = slice(strings.Split(dir[1:], "/"))
			dir = expand(unit)
		}
	}
	for _, c := range controllers() {
		root, _, ok := m.find(c)
		if !ok || !l.needs(c) {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			return fmt.Errorf("the cgroup %s does not exist: %w", dir, err)
		}
	}
	if unit != "" {
		if err := m.Units.Set(unit, m.limitProperties(l)); err != nil {
			return err
		}
	}
	return m.write(dir, l)
}
