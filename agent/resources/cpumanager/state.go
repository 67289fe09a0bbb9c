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

// state is the checkpoint, in upstream's format.
type state struct {
	Policy  string                       `json:"policyName"`
	Shared  string                       `json:"defaultCpuSet"`
	Entries map[string]map[string]string `json:"entries,omitempty"`
}

// save writes the checkpoint. If that fails, allocations stay valid; after a restart
// the agent restores them from the containers' annotations (Recover).
func (m *Manager) save() {
	m.saveMu.Lock()
	defer m.saveMu.Unlock()
	s := m.state()
	if err := m.File.Save(s); err != nil {
		m.Log.Error("failed to write the CPU manager checkpoint: "+
			"after a restart, allocations are restored only from container annotations",
			zap.String("file", string(m.File)), zap.Error(err))
	}
}

func (m *Manager) state() state {
	s := state{Policy: Static, Shared: m.Shared().String(), Entries: map[string]map[string]string{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, containers := range m.allocated {
		entry := map[string]string{}
		for name, cpus := range containers {
			entry[name] = cpus.String()
		}
		s.Entries[string(uid)] = entry
	}
	return s
}

// restore restores the checkpoint. A checkpoint that is damaged, or invalid on this
// machine with these flags, is set aside.
func (m *Manager) restore() error {
	var s state
	found, err := m.File.Load(&s)
	if err == nil && found {
		err = m.accept(s)
	}
	if err == nil {
		if m.noCheckpoint = !found; found && s.Shared != m.Shared().String() {
			m.save()
		}
		return nil
	}
	clear(m.allocated)
	m.noCheckpoint = true
	if m.lost, err = m.File.StartOver(err, "allocations of running containers are restored from the runtime"); err != nil {
		return err
	}
	m.Log.Error("cannot restore the CPU manager checkpoint", zap.Error(m.lost))
	return nil
}

// accept validates the checkpoint and restores its allocations.
func (m *Manager) accept(s state) error {
	if s.Policy != Static {
		return fmt.Errorf("%s: its policy is %q", m.File, s.Policy)
	}
	for uid, containers := range s.Entries {
		for name, text := range containers {
			if err := m.restoreContainer(types.UID(uid), name, text); err != nil {
				return fmt.Errorf("%s: %w", m.File, err)
			}
		}
	}
	return nil
}

// restoreContainer records the container's exclusive CPUs if they are valid. The caller holds mu, or has not shared m
// yet.
func (m *Manager) restoreContainer(uid types.UID, container, text string) error {
	cpus, err := cpuset.Parse(text)
	if err != nil || cpus.IsEmpty() {
		return fmt.Errorf("%q is not a list of CPUs", text)
	}
	if !cpus.IsSubsetOf(m.Allocatable()) {
		return fmt.Errorf("the CPUs %s of container %s of pod %s are not all among the allocatable CPUs %s", cpus, container,
			uid, m.Allocatable())
	}
	for other, has := range m.allocated {
		if twice := cpus.Intersection(cpuset.New().Union(slices.Collect(maps.Values(has))...)); other != uid &&
			!twice.IsEmpty() {
			return fmt.Errorf("two pods have the exclusive CPUs %s", twice)
		}
	}
	m.record(uid, container, cpus)
	return nil
}

// annotation is the container annotation that contains its exclusive CPUs.
const annotation = "io.monopod.container.cpus"

// Recover implements topology.Provider. CPUs that are not valid with the current machine and flags are replaced by new
// ones.
func (m *Manager) Recover(made []topology.Container) {
	if !m.noCheckpoint {
		return
	}
	m.mu.Lock()
	topology.RestoreFromAnnotations(m.Log, made, annotation, func(c topology.Container, note string) error {
		if _, has := m.allocated[c.Pod][c.Container]; has {
			return nil
		}
		return m.restoreContainer(c.Pod, c.Container, note)
	})
	m.mu.Unlock()
	m.save()
	m.Changed()
}
