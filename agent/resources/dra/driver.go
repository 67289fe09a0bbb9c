package dra

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"
	v1 "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"monopod/agent/resources/plugins"
	"monopod/apiserver/kit/unixsocket"
)

// driver is a registered instance of a DRA driver. During an update there may be two instances with the same name.
type driver struct {
	name, socket string
	api          v1.DRAPluginClient
	life         context.Context
	watch        watcher // nil: the driver does not report health

	watched bool                // a goroutine reads the health; guarded by the Manager's mu
	health  map[deviceID]health // of the devices; guarded by the Manager's mu
}

// Absent is the error for a driver that is not registered. Its text is upstream's.
type Absent struct{ Driver string }

func (a *Absent) Error() string { return fmt.Sprintf("DRA driver %s is not registered", a.Driver) }

// Welcome is the plugins.Handler of DRA drivers.
func (m *Manager) Welcome(life, _ context.Context, p plugins.Plugin) error {
	if p.Name == "" {
		return fmt.Errorf("DRA driver name is empty for socket %s", p.Socket)
	}
	if err := unixsocket.Check(p.Socket); err != nil {
		return err
	}
	newest := slices.Contains(p.Versions, v1.DRAPluginService)
	if !newest && !slices.Contains(p.Versions, v1beta1.DRAPluginService) {
		return fmt.Errorf("none of the versions %q is supported, %q are", p.Versions,
			[]string{v1.DRAPluginService, v1beta1.DRAPluginService})
	}
	conn, err := plugins.Open(p.Socket, m.cfg.Dial, nil)
	if err != nil {
		return err
	}
	d := &driver{name: p.Name, socket: p.Socket, api: v1.NewDRAPluginClient(conn), life: life,
		watch: watcherOf(conn, p.Versions)}
	if !newest {
		d.api = v1beta1.V1Beta1ClientWrapper{DRAPluginClient: v1beta1.NewDRAPluginClient(conn)}
	}
	m.mu.Lock()
	m.drivers[d.name] = append(m.drivers[d.name], d)
	delete(m.removeSlicesAt, d.name)
	m.mu.Unlock()
	m.cfg.Log.Info("DRA driver registered", zap.String("driver", d.name), zap.String("socket", d.socket))
	context.AfterFunc(life, func() {
		m.disconnected(d)
		_ = conn.Close() // running calls fail
	})
	m.poke()
	m.cfg.Registered(d.name)
	return nil
}

// disconnected forgets a driver whose socket has disappeared.
func (m *Manager) disconnected(d *driver) {
	m.mu.Lock()
	rest := slices.DeleteFunc(m.drivers[d.name], func(other *driver) bool { return other == d })
	m.drivers[d.name] = rest
	if len(rest) == 0 {
		delete(m.drivers, d.name)
		m.removeSlicesAt[d.name] = m.cfg.Clock.Now().Add(returnGrace)
	}
	m.mu.Unlock()
	m.cfg.Log.Info("DRA driver disconnected", zap.String("driver", d.name), zap.String("socket", d.socket))
	m.poke()
}

// driver returns the newest instance of a driver, or an *Absent.
func (m *Manager) driver(name string) (*driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.drivers[name]; len(all) > 0 {
		return all[len(all)-1], nil
	}
	return nil, &Absent{name}
}
