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

// Prepare creates the cgroup of all pods, with the limits all, and those of the QoS
// classes. BestEffort pods get only CPU time that no other pod needs.
func (m *Manager) Prepare(all Limits) error {
	var errs []error
	pods := m.name(corev1.PodQOSGuaranteed)
	for i := 1; i < len(pods); i++ { // parents of kubepods get the same shares
		errs = append(errs, m.set(pods[:i], Limits{Shares: all.Shares}))
	}
	errs = append(errs, m.set(pods, all),
		m.set(m.name(corev1.PodQOSBestEffort), Limits{Shares: spec.Shares(0)}))
	m.writing.Lock()
	m.shares = 0 // the cgroup of the class may be gone
	m.writing.Unlock()
	return errors.Join(append(errs, m.share())...)
}

// Hold adds the pod's requests to those of its QoS class, whose CPU shares are their
// sum. Create does this too; Hold is for pods that an earlier agent admitted.
func (m *Manager) Hold(pod *corev1.Pod) error {
	if status.QOS(pod) != corev1.PodQOSBurstable {
		return nil
	}
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	m.mu.Lock()
	m.burstable[pod.UID] = requests.Cpu().MilliValue()
	m.mu.Unlock()
	return m.share()
}

// release subtracts the pod's requests.
func (m *Manager) release(uid types.UID) error {
	m.mu.Lock()
	_, held := m.burstable[uid]
	delete(m.burstable, uid)
	m.mu.Unlock()
	if !held {
		return nil
	}
	return m.share()
}

// share writes the shares of the Burstable class if they changed.
func (m *Manager) share() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	shares := spec.Shares(m.requested())
	if shares == m.shares {
		return nil
	}
	err := m.set(m.name(corev1.PodQOSBurstable), Limits{Shares: shares})
	if err == nil {
		m.shares = shares
	}
	return err
}

// requested is the sum of the requests of the class's pods.
func (m *Manager) requested() (milli int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, request := range m.burstable {
		milli += request
	}
	return milli
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
