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
	errs = append(errs, m.set(pods, all),
		m.set(m.name(corev1.PodQOSBestEffort), Limits{Shares: spec.Shares(0)}))
	m.sharesMu.Lock()
	m.shares = 0 // the cgroup of the class may have been removed
	m.sharesMu.Unlock()
	return errors.Join(append(errs, m.updateShares())...)
}

// Adopt adds the pod's CPU requests to the shares of its QoS class. Create also does this; Adopt is for pods that an
// earlier agent admitted.
func (m *Manager) Adopt(pod *corev1.Pod) error {
	if status.QOS(pod) != corev1.PodQOSBurstable {
		return nil
	}
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	m.mu.Lock()
	m.burstable[pod.UID] = requests.Cpu().MilliValue()
	m.mu.Unlock()
	return m.updateShares()
}

// release subtracts the pod's CPU requests from the shares of its QoS class.
func (m *Manager) release(uid types.UID) error {
	m.mu.Lock()
	_, held := m.burstable[uid]
	delete(m.burstable, uid)
	m.mu.Unlock()
	if !held {
		return nil
	}
	return m.updateShares()
}

// updateShares writes the shares of the Burstable class if they changed.
func (m *Manager) updateShares() error {
	m.sharesMu.Lock()
	defer m.sharesMu.Unlock()
	var requested int64 // of all Burstable pods, in thousandths of a CPU
	m.mu.Lock()
	for _, milli := range m.burstable {
		requested += milli
	}
	m.mu.Unlock()
	shares := spec.Shares(requested)
	if shares == m.shares {
		return nil
	}
	err := m.set(m.name(corev1.PodQOSBurstable), Limits{Shares: shares})
	if err == nil {
		m.shares = shares
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
