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

	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
)

// Prepare makes the cgroups of all pods, which may have together what all says, and
// of the classes. Best-effort pods get processor time that nobody else wants.
func (m *Manager) Prepare(all Limits) error {
	var errs []error
	pods := m.name(corev1.PodQOSGuaranteed)
	for i := 1; i < len(pods); i++ { // the root's parts count as much as the pods in them
		errs = append(errs, m.set(pods[:i], Limits{Shares: all.Shares}))
	}
	errs = append(errs, m.set(pods, all),
		m.set(m.name(corev1.PodQOSBestEffort), Limits{Shares: spec.Shares(0)}))
	m.writing.Lock()
	m.shares = 0 // the class may be gone
	m.writing.Unlock()
	return errors.Join(append(errs, m.share())...)
}

// Hold counts the pod's requests to those of its class, whose share of the
// processors is their sum. Create does so, too; here they are told of whom an
// earlier agent let in.
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

// release counts the pod no more.
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

// share writes the shares of the burstable class, when they changed.
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

// requested is the sum of what the class' pods request.
func (m *Manager) requested() (milli int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, request := range m.burstable {
		milli += request
	}
	return milli
}

// Limit sets the limits of a cgroup that is not ours, and must be there.
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
