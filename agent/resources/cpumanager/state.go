package cpumanager

import (
	"fmt"
	"maps"
	"slices"

	"monopod/agent/resources/topology"

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

// save writes who has what. Where that fails, it holds all the same; an agent that
// restarts then reads what containers have from their annotations (Recover).
func (m *Manager) save() {
	m.saving.Lock()
	defer m.saving.Unlock()
	s := m.state()
	if err := m.File.Save(s); err != nil {
		m.Log.Error("who has which processors is not stored: after a restart only the containers' annotations tell of it", zap.String("file", string(m.File)), zap.Error(err))
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
		if m.fresh = !found; found && s.Shared != m.Shared().String() {
			m.save()
		}
		return nil
	}
	clear(m.given)
	m.fresh = true
	if m.lost, err = m.File.StartOver(err, "what containers have that run is taken from the runtime"); err != nil {
		return err
	}
	m.Log.Error("the file of processors given out is of no use", zap.Error(m.lost))
	return nil
}

// accept checks that what the state says can be.
func (m *Manager) accept(s state) error {
	if s.Policy != Static {
		return fmt.Errorf("%s: it is of policy %q", m.File, s.Policy)
	}
	for uid, containers := range s.Entries {
		for name, text := range containers {
			if err := m.take(types.UID(uid), name, text); err != nil {
				return fmt.Errorf("%s: %w", m.File, err)
			}
		}
	}
	return nil
}

// take notes that the container has the processors, if that can be. mu is held, or
// there is nobody else yet.
func (m *Manager) take(uid types.UID, container, text string) error {
	cpus, err := cpuset.Parse(text)
	if err != nil || cpus.IsEmpty() {
		return fmt.Errorf("%q is no list of processors", text)
	}
	if !cpus.IsSubsetOf(m.Allocatable()) {
		return fmt.Errorf("the processors %s of container %s of pod %s are not all among %s, which may be given out", cpus, container, uid, m.Allocatable())
	}
	for other, has := range m.given {
		if twice := cpus.Intersection(cpuset.New().Union(slices.Collect(maps.Values(has))...)); other != uid && !twice.IsEmpty() {
			return fmt.Errorf("two pods have the processors %s", twice)
		}
	}
	m.note(uid, container, cpus)
	return nil
}

// annotation of a container are the processors that it has for itself.
const annotation = "io.monopod.container.cpus"

// Recover implements topology.Provider. Processors that the container cannot have
// any more, with the machine and the flags of today, are given out anew.
func (m *Manager) Recover(made []topology.Made) {
	if !m.fresh {
		return
	}
	m.mu.Lock()
	topology.TakeBack(m.Log, made, annotation, func(c topology.Made, note string) error {
		if _, has := m.given[c.Pod][c.Container]; has {
			return nil
		}
		return m.take(c.Pod, c.Container, note)
	})
	m.mu.Unlock()
	m.save()
	m.Changed()
}
