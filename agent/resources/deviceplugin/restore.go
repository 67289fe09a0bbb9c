package deviceplugin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod/agent/resources/deviceplugin/checkpoint"
	"monopod/agent/resources/topology"
)

// annotation is the container annotation that contains its entries of the checkpoint.
const annotation = "io.monopod.container.devices"

// note returns the value of annotation; empty: the container has no devices.
func (p *pool) note(uid types.UID, container string) (string, error) {
	var entries []checkpoint.PodDevicesEntry
	for _, name := range sortedKeys(p.pods[uid][container]) {
		if e, ok := p.entry(uid, container, name); ok {
			entries = append(entries, e)
		}
	}
	if entries == nil {
		return "", nil
	}
	text, err := json.Marshal(entries)
	return string(text), err
}

// Recover implements topology.Provider.
func (m *Manager) Recover(made []topology.Container) {
	if !m.noCheckpoint {
		return
	}
	topology.RestoreFromAnnotations(m.log, made, annotation, m.recover)
	m.save()
}

func (m *Manager) recover(c topology.Container, note string) error {
	var entries []checkpoint.PodDevicesEntry
	if err := json.Unmarshal([]byte(note), &entries); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		if e.PodUID != string(c.Pod) || e.ContainerName != c.Container {
			return fmt.Errorf("they are recorded for container %s of pod %s", e.ContainerName, e.PodUID)
		}
		if m.pool.pods[c.Pod][c.Container][e.ResourceName] != nil {
			continue // restored from a newer instance of the container
		}
		if err := m.pool.restoreShare(e); err != nil {
			return err
		}
		if r, fresh := m.pool.resourceFor(e.ResourceName); fresh && m.life != nil && m.life.Err() == nil {
			back := r.returned
			m.guard.Go(&m.endpoints, "device plugin", func() { m.expire(m.life, e.ResourceName, back) })
		}
	}
	return nil
}

// restore restores the checkpoint. The node has no devices until their plugins register again.
func (p *pool) restore(d checkpoint.Data) error {
	for name := range d.Registered {
		p.resourceFor(name)
	}
	for _, e := range d.Entries {
		p.resourceFor(e.ResourceName)
		if err := p.restoreShare(e); err != nil {
			return err
		}
	}
	return nil
}

// resourceFor returns the resource of the name; fresh means that it is new, and waits for its plugin.
func (p *pool) resourceFor(name string) (r *resource, fresh bool) {
	if r = p.resources[name]; r == nil {
		r, fresh = &resource{returned: make(chan struct{})}, true
		p.resources[name] = r
	}
	return r, fresh
}

// restoreShare restores a container's devices.
func (p *pool) restoreShare(e checkpoint.PodDevicesEntry) error {
	resp := &plugin.ContainerAllocateResponse{}
	if err := proto.Unmarshal(e.AllocResp, resp); err != nil {
		return err
	}
	var ids []string
	for _, some := range e.DeviceIDs {
		ids = append(ids, some...)
	}
	slices.Sort(ids)
	if others := p.taken(e.ResourceName, types.UID(e.PodUID)); slices.ContainsFunc(ids,
		func(id string) bool { return others[id] }) {
		return fmt.Errorf("another pod has some of the devices %v of %s", ids, e.ResourceName)
	}
	p.put(types.UID(e.PodUID), e.ContainerName, e.ResourceName,
		&share{ids: slices.Compact(ids), response: resp, restored: true})
	return nil
}

// data returns the content of the checkpoint, sorted.
func (p *pool) data() checkpoint.Data {
	d := checkpoint.Data{Registered: map[string][]string{}}
	for name, r := range p.resources {
		if r.expired {
			continue
		}
		d.Registered[name] = []string{}
		for _, id := range sortedKeys(r.devices) {
			if r.devices[id].healthy {
				d.Registered[name] = append(d.Registered[name], id)
			}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(p.pods)) {
		for _, container := range sortedKeys(p.pods[uid]) {
			for _, name := range sortedKeys(p.pods[uid][container]) {
				if e, ok := p.entry(uid, container, name); ok {
					d.Entries = append(d.Entries, e)
				}
			}
		}
	}
	return d
}

// entry returns a share in the checkpoint's format; ok means that the plugin has allocated the devices.
func (p *pool) entry(uid types.UID, container, name string) (e checkpoint.PodDevicesEntry, ok bool) {
	s := p.pods[uid][container][name]
	if s.response == nil {
		return e, false
	}
	resp, err := proto.MarshalOptions{Deterministic: true}.Marshal(s.response)
	if err != nil {
		return e, false
	}
	ids := checkpoint.DevicesPerNUMA{}
	for _, id := range s.ids {
		nodes := []int{checkpoint.NoNUMANode}
		if r := p.resources[name]; r != nil && r.devices[id].nodes != 0 {
			nodes = r.devices[id].nodes.IDs()
		}
		for _, n := range nodes {
			ids[int64(n)] = append(ids[int64(n)], id)
		}
	}
	return checkpoint.PodDevicesEntry{
		PodUID: string(uid), ContainerName: container, ResourceName: name, DeviceIDs: ids, AllocResp: resp,
	}, true
}
