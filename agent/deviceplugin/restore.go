package deviceplugin

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod/agent/deviceplugin/checkpoint"
)

// restore takes over what the checkpoint says. Of the devices themselves it knows
// nothing until their plugins come back: until then the node has none.
func (p *pool) restore(d checkpoint.Data) error {
	for name := range d.Registered {
		p.resources[name] = &resource{back: make(chan struct{})}
	}
	for _, e := range d.Entries {
		resp := &plugin.ContainerAllocateResponse{}
		if err := proto.Unmarshal(e.AllocResp, resp); err != nil {
			return err
		}
		var ids []string
		for _, some := range e.DeviceIDs {
			ids = append(ids, some...)
		}
		slices.Sort(ids)
		if p.resources[e.ResourceName] == nil {
			p.resources[e.ResourceName] = &resource{back: make(chan struct{})}
		}
		p.put(types.UID(e.PodUID), e.ContainerName, e.ResourceName, &share{ids: slices.Compact(ids), response: resp, restored: true})
	}
	return nil
}

// data is what the checkpoint is to say: what plugins were asked about, in order.
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

// entry is one share as the checkpoint has it; ok: its plugin was asked.
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
