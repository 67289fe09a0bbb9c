package cpumanager

import (
	"fmt"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
)

// state is the file, in upstream's form.
type state struct {
	Policy  string                       `json:"policyName"`
	Shared  string                       `json:"defaultCpuSet"`
	Entries map[string]map[string]string `json:"entries,omitempty"`
}

// save writes who has what. Where that fails, it holds all the same until the
// agent restarts, which then gives out processors anew.
func (m *Manager) save() {
	m.saving.Lock()
	defer m.saving.Unlock()
	s := m.state()
	if err := m.File.Save(s); err != nil {
		m.Log.Error("who has which processors is not stored: after a restart containers may run on others", zap.String("file", string(m.File)), zap.Error(err))
	}
}

func (m *Manager) state() state {
	s := state{Policy: Static, Shared: m.Shared().String(), Entries: map[string]map[string]string{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, containers := range m.given {
		entry := map[string]string{}
		for name, cpus := range containers {
			entry[name] = cpus.String()
		}
		s.Entries[string(uid)] = entry
	}
	return s
}

// restore takes over what the file says. One that is damaged, or cannot be true on
// this machine with these flags, is set aside.
func (m *Manager) restore() error {
	var s state
	found, err := m.File.Load(&s)
	if err == nil && found {
		err = m.accept(s)
	}
	if err == nil {
		if !found || s.Shared != m.Shared().String() {
			m.save()
		}
		return nil
	}
	clear(m.given)
	if m.lost, err = m.File.StartOver(err, "processors are given out anew: containers that had their own may run on others"); err != nil {
		return err
	}
	m.Log.Error("the file of processors given out is of no use", zap.Error(m.lost))
	m.save()
	return nil
}

// accept checks that what the state says can be.
func (m *Manager) accept(s state) error {
	if s.Policy != Static {
		return fmt.Errorf("%s: it is of policy %q", m.File, s.Policy)
	}
	for uid, containers := range s.Entries {
		entry := map[string]cpuset.CPUSet{}
		var pod cpuset.CPUSet
		for name, text := range containers {
			cpus, err := cpuset.Parse(text)
			if err != nil || cpus.IsEmpty() {
				return fmt.Errorf("%s: %q is no list of processors", m.File, text)
			}
			if !cpus.IsSubsetOf(m.Allocatable()) {
				return fmt.Errorf("%s: the processors %s of container %s of pod %s are not all among %s, which may be given out", m.File, cpus, name, uid, m.Allocatable())
			}
			entry[name], pod = cpus, pod.Union(cpus)
		}
		if twice := pod.Intersection(m.union()); !twice.IsEmpty() {
			return fmt.Errorf("%s: two pods have the processors %s", m.File, twice)
		}
		m.given[types.UID(uid)] = entry
	}
	return nil
}
