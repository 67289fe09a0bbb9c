package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/agent/resources/plugins"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/unixsocket"
)

// driver is a registered driver.
type driver struct {
	name     string
	endpoint string // as the driver named it
	node     csi.NodeClient
	can      []csi.NodeServiceCapability_RPC_Type
	info     *csi.NodeGetInfoResponse // guarded by the Manager's node
}

// callTimeout is how long a driver may take to answer (upstream: csiTimeout, 2 min).
const callTimeout = 2 * time.Minute

// has reports whether the driver has a capability.
func (d *driver) has(c csi.NodeServiceCapability_RPC_Type) bool { return slices.Contains(d.can, c) }

// Welcome is the plugins.Handler of CSI drivers.
func (m *Manager) Welcome(life, ctx context.Context, p plugins.Plugin) error {
	if !slices.ContainsFunc(p.Versions, func(v string) bool {
		return strings.TrimPrefix(v, "v") == "1" || strings.HasPrefix(strings.TrimPrefix(v, "v"), "1.")
	}) {
		return fmt.Errorf("none of the versions %q of CSI driver %s is supported, 1.x is", p.Versions, p.Name)
	}
	if err := unixsocket.Check(p.Socket); err != nil {
		return err
	}
	conn, err := plugins.Open(p.Socket, m.cfg.Dial, func(method string, began time.Time, err error) {
		m.calls.WithLabelValues(p.Name, method, status.Code(err).String(), "false").Observe(time.Since(began).Seconds())
	})
	if err != nil {
		return err
	}
	d := &driver{name: p.Name, endpoint: p.Endpoint, node: csi.NewNodeClient(conn)}
	if err := m.register(ctx, d); err != nil {
		return fmt.Errorf("CSI driver %s: %w", d.name, errors.Join(err, conn.Close()))
	}
	m.cfg.Log.Info("CSI driver registered", zap.String("driver", d.name), zap.String("socket", p.Socket))
	context.AfterFunc(life, func() {
		m.disconnected(d)
		_ = conn.Close() // running calls fail
	})
	m.begin()
	m.mu.Lock()
	m.wake(key{limit: d.name})
	for v, dev := range m.volumes {
		if v.driver == d.name && len(dev.users) == 0 {
			m.wake(key{idle: v})
		}
	}
	m.mu.Unlock()
	m.cfg.Changed()
	return nil
}

// register asks the driver what it can do, and writes what it says about the node.
func (m *Manager) register(ctx context.Context, d *driver) error {
	able, err := d.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return fmt.Errorf("NodeGetCapabilities: %w", err)
	}
	for _, c := range able.GetCapabilities() {
		d.can = append(d.can, c.GetRpc().GetType())
	}
	if d.info, err = d.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}); err != nil {
		return fmt.Errorf("NodeGetInfo: %w", err)
	}
	if d.info.GetNodeId() == "" {
		return fmt.Errorf("NodeGetInfo: the answer has no node_id")
	}
	m.mu.Lock()
	before := m.drivers[d.name]
	m.drivers[d.name] = d
	m.mu.Unlock()
	// The Node may not exist yet: it is registered at the same time.
	retry := backoff.Retry{First: backoff.WriteInitial, Most: backoff.WriteMax}
	err = m.writeNode(ctx, d.name)
	for apierrors.IsNotFound(err) && retry.Wait(ctx, m.cfg.Clock) {
		err = m.writeNode(ctx, d.name)
	}
	if err != nil {
		m.mu.Lock()
		if m.drivers[d.name] = before; before == nil {
			delete(m.drivers, d.name)
		}
		m.mu.Unlock()
		return err
	}
	return nil
}

// updateLimit asks a driver again how many volumes the node may have, as often as its CSIDriver says.
func (m *Manager) updateLimit(ctx context.Context, name string) (again time.Duration, err error) {
	d, missing := m.driver(name)
	object, err := m.object(ctx, name)
	if missing != nil || err != nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0, err
	}
	again = time.Duration(*object.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := d.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return again, err
	}
	m.node.Lock()
	changed := info.GetMaxVolumesPerNode() != d.info.GetMaxVolumesPerNode()
	d.info = info
	m.node.Unlock()
	if !changed {
		return again, nil
	}
	return again, m.writeNode(ctx, name)
}

// disconnected forgets a driver whose socket has disappeared.
func (m *Manager) disconnected(d *driver) {
	m.mu.Lock()
	current := m.drivers[d.name] == d
	if current {
		delete(m.drivers, d.name)
	}
	life := m.life
	m.mu.Unlock()
	if !current || life == nil || life.Err() != nil { // replaced, or this process ends
		return
	}
	m.cfg.Log.Info("CSI driver disconnected", zap.String("driver", d.name))
	ctx, cancel := context.WithTimeout(life, plugins.Timeout)
	defer cancel()
	if err := m.writeNode(ctx, d.name); err != nil {
		m.cfg.Log.Warn("failed to remove a CSI driver from the CSINode", zap.String("driver", d.name), zap.Error(err))
	}
}

// ErrNoDriver is the error for a driver that is not registered.
type ErrNoDriver struct{ Driver string }

// Error returns upstream's text.
func (e *ErrNoDriver) Error() string {
	return fmt.Sprintf("driver name %s not found in the list of registered CSI drivers", e.Driver)
}

// driver returns a registered driver, or an *ErrNoDriver.
func (m *Manager) driver(name string) (*driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[name]; d != nil {
		return d, nil
	}
	return nil, &ErrNoDriver{name}
}

// object returns the CSIDriver of a driver; without one the defaults.
func (m *Manager) object(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	o, err := client.Get[*storagev1.CSIDriver](ctx, m.cfg.Client, "", name)
	if apierrors.IsNotFound(err) {
		return &storagev1.CSIDriver{}, nil
	}
	return o, err
}
