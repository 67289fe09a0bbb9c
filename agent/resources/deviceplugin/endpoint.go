package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod/agent/resources/plugins"
	"monopod/agent/resources/topology"
	"monopod/apiserver/kit/unixsocket"
)

// endpoint is the connection to a plugin that serves a resource.
type endpoint struct {
	resource string
	socket   string
	api      plugin.DevicePluginClient
	options  *plugin.DevicePluginOptions
	life     context.Context // ends with the connection
	stop     context.CancelFunc
}

// connect connects to a plugin, makes it serve the resource, and stops the resource's previous endpoint.
func (m *Manager) connect(ctx context.Context, name, path string,
	options *plugin.DevicePluginOptions) (*endpoint, error) {
	if err := unixsocket.Check(path); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	conn, err := plugins.Open(path, m.cfg.Dial, nil)
	if err != nil {
		return nil, err
	}
	e := &endpoint{resource: name, socket: path, api: plugin.NewDevicePluginClient(conn)}
	ctx, cancel := context.WithTimeout(ctx, plugins.Timeout)
	defer cancel()
	e.options, err = e.api.GetDevicePluginOptions(ctx, &plugin.Empty{})
	if status.Code(err) == codes.Unimplemented {
		e.options, err = options, nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("device plugin of %s: options: %w", name, err), conn.Close())
	}
	e.life, e.stop = context.WithCancel(m.life)
	m.mu.Lock()
	r := m.pool.resources[name]
	if r == nil {
		r = &resource{}
		m.pool.resources[name] = r
	}
	before := r.endpoint
	r.endpoint, r.expired = e, false
	if r.returned != nil {
		close(r.returned)
		r.returned = nil
	}
	m.mu.Unlock()
	if before != nil {
		before.stop()
	}
	m.log.Info("device plugin registered", zap.String("resource", name), zap.String("socket", path))
	m.guard.Go(&m.endpoints, "device plugin", func() {
		defer conn.Close()
		m.follow(e)
	})
	return e, nil
}

// follow reads the plugin's lists of devices until the plugin disconnects, and then waits until a plugin registers for
// the resource.
func (m *Manager) follow(e *endpoint) {
	stream, err := e.api.ListAndWatch(e.life, &plugin.Empty{})
	for err == nil {
		var list *plugin.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			m.listed(e, list.Devices)
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the plugin ended ListAndWatch")
	}
	e.stop()
	back := m.disconnected(e)
	if back == nil || m.life.Err() != nil {
		return // another plugin serves the resource, or the manager stops
	}
	m.log.Warn("device plugin disconnected", zap.String("resource", e.resource), zap.Error(err))
	m.expire(m.life, e.resource, back)
}

// listed records a list of devices.
func (m *Manager) listed(e *endpoint, list []*plugin.Device) {
	devices := make(map[string]device, len(list))
	for _, d := range list {
		devices[d.GetID()] = device{healthy: d.GetHealth() == plugin.Healthy, nodes: nodesOf(d)}
	}
	m.mu.Lock()
	r := m.pool.resources[e.resource]
	if r.endpoint != e {
		m.mu.Unlock()
		return
	}
	r.devices, r.seen = devices, true
	pods := m.users(e.resource)
	m.mu.Unlock()
	m.save()
	m.cfg.Changed(pods)
}

// nodesOf returns the valid NUMA nodes of the device.
func nodesOf(d *plugin.Device) topology.Nodes {
	var nodes topology.Nodes
	for _, n := range d.GetTopology().GetNodes() {
		if n.GetID() >= 0 && n.GetID() < 64 {
			nodes |= topology.NewNodes(int(n.GetID()))
		}
	}
	return nodes
}

// disconnected marks all devices of a plugin unhealthy. The returned channel is closed when a plugin serves the
// resource again; nil: one already does.
func (m *Manager) disconnected(e *endpoint) (back <-chan struct{}) {
	m.mu.Lock()
	r := m.pool.resources[e.resource]
	if r.endpoint != e {
		m.mu.Unlock()
		return nil
	}
	r.endpoint, r.returned = nil, make(chan struct{})
	back = r.returned
	for id, d := range r.devices {
		d.healthy = false
		r.devices[id] = d
	}
	pods := m.users(e.resource)
	m.mu.Unlock()
	if m.life.Err() == nil { // otherwise the checkpoint keeps the devices for the next start
		m.save()
		m.cfg.Changed(pods)
	}
	return back
}

// expire removes the devices of a resource for which no plugin registers within returnGrace.
func (m *Manager) expire(ctx context.Context, name string, back <-chan struct{}) {
	timer := m.cfg.Clock.NewTimer(returnGrace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-back:
		return
	case <-timer.C():
	}
	m.mu.Lock()
	r := m.pool.resources[name]
	away := r.endpoint == nil
	if away {
		r.devices, r.expired = nil, true
	}
	m.mu.Unlock()
	if away {
		m.save()
		m.cfg.Changed(nil)
	}
}
