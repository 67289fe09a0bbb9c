// Package deviceplugin implements Kubernetes' device plugin API (v1beta1), through which programs offer devices of the
// machine to pods.
//
// A plugin listens on a socket in Config.Dir and calls Register at kubelet.sock there, or creates a socket in the
// folder that package plugins watches. Then the Manager follows its list of devices. As a topology.Provider, the
// Manager allocates devices to containers; the plugin provides the part of the container's config for them.
//
//   - Manager: the interface to the agent.
//   - server.go: registration; endpoint.go: the connection to a plugin.
//   - pool.go, hints.go: the devices and their allocation; pure.
//   - allocate.go: the calls to plugins for the devices of a container.
//
// Allocations are stored in kubelet's checkpoint (package checkpoint): a container keeps its devices when the agent or
// the machine restarts.
package deviceplugin

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/resources/deviceplugin/checkpoint"
	"monopod/agent/resources/plugins"
	"monopod/agent/resources/topology"
	"monopod/apiserver/kit/guard"
)

// returnGrace is how long a plugin may be away before the capacity of its resource becomes 0 (upstream: 5 minutes).
const returnGrace = 5 * time.Minute

// Config of a Manager. Dir, Clock, Log and Metrics are required.
type Config struct {
	Dir   string         // of the plugins' sockets and the checkpoint
	Nodes topology.Nodes // of the machine

	Clock   clock.Clock
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Guard   *guard.Guard // of the manager's goroutines; nil: their panics are only logged

	// Changed is called after the node's devices may have changed, with the pods that use the resource. It must not
	// block; it may be nil.
	Changed func(pods []types.UID)
	// Watch calls Welcome for plugins whose sockets appear, until ctx ends. Run calls it. nil: plugins must register.
	Watch func(ctx context.Context)
	// Over reports whether the containers of a pod that was not released yet are dead; it may be nil.
	Over func(types.UID) bool

	// Listen and Dial are for Unix sockets; nil: the machine's.
	Listen func(path string) (net.Listener, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)
}

// Manager manages the plugins and the allocation of their devices.
type Manager struct {
	cfg          Config
	log          *zap.Logger
	guard        *guard.Guard
	metrics      *metrics
	lost         error // why the checkpoint was set aside; nil: it was restored
	noCheckpoint bool  // there is no checkpoint: Recover writes it

	endpoints sync.WaitGroup

	mu   sync.Mutex      // guards pool, and life until it is set
	life context.Context // of the plugins; set by Run
	pool pool

	saveMu sync.Mutex // one write of the checkpoint at a time, always the newest state; guards saved
	saved  string     // the content of the file
}

var _ topology.Provider = (*Manager)(nil)

// New restores the checkpoint. It sets a damaged checkpoint aside, which Lost reports; then Recover restores the
// allocations from the annotations of containers.
func New(cfg Config) (*Manager, error) {
	if cfg.Listen == nil {
		cfg.Listen = plugins.Listen
	}
	if cfg.Dial == nil {
		cfg.Dial = plugins.Dial
	}
	if cfg.Changed == nil {
		cfg.Changed = func([]types.UID) {}
	}
	if cfg.Over == nil {
		cfg.Over = func(types.UID) bool { return false }
	}
	if cfg.Guard == nil {
		cfg.Guard = guard.Logging(cfg.Log)
	}
	m := &Manager{cfg: cfg, log: cfg.Log, guard: cfg.Guard, pool: newPool()}
	var err error
	if m.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, err
	}
	m.restore()
	return m, nil
}

// restore restores the checkpoint, or sets it aside.
func (m *Manager) restore() {
	data, err := checkpoint.Read(m.cfg.Dir)
	if err == nil {
		err = m.pool.restore(data)
	}
	if m.noCheckpoint = err != nil; !m.noCheckpoint {
		return
	}
	m.pool = newPool()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if m.lost, err = checkpoint.StartOver(m.cfg.Dir, err); err != nil {
		m.lost = err // pods run without a checkpoint
	}
	m.log.Error("cannot restore the device checkpoint", zap.Error(m.lost))
}

// Lost returns why the checkpoint was set aside; nil: it was restored.
func (m *Manager) Lost() error { return m.lost }

// Run serves plugins until ctx ends. It returns an error if it cannot listen.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer m.endpoints.Wait()
	m.mu.Lock()
	m.life = ctx
	for name, r := range m.pool.resources {
		back := r.returned
		m.guard.Go(&m.endpoints, "device plugin", func() { m.expire(ctx, name, back) })
	}
	m.mu.Unlock()
	var parts sync.WaitGroup
	defer parts.Wait()
	defer func() {
		m.mu.Lock() // Recover adds to endpoints while life has not ended
		defer m.mu.Unlock()
		cancel()
	}()
	if m.cfg.Watch != nil {
		m.guard.Go(&parts, "device plugin", func() { m.cfg.Watch(ctx) })
	}
	return m.serve(ctx)
}

// Capacity returns the node's capacity and allocatable devices. Both are 0 for a
// resource whose plugin has been away for too long.
func (m *Manager) Capacity() (capacity, allocatable corev1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for name, r := range m.pool.resources {
		all, healthy := 0, 0
		for _, d := range r.devices {
			all++
			if d.healthy {
				healthy++
			}
		}
		capacity[corev1.ResourceName(name)] = *apiresource.NewQuantity(int64(all), apiresource.DecimalSI)
		allocatable[corev1.ResourceName(name)] = *apiresource.NewQuantity(int64(healthy), apiresource.DecimalSI)
	}
	return capacity, allocatable
}

// Taken returns the number of allocated devices of each resource.
func (m *Manager) Taken() map[corev1.ResourceName]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := map[string]map[string]bool{}
	for _, containers := range m.pool.pods {
		for _, has := range containers {
			for name, s := range has {
				if ids[name] == nil {
					ids[name] = map[string]bool{}
				}
				for _, id := range s.ids {
					ids[name][id] = true
				}
			}
		}
	}
	out := map[corev1.ResourceName]int64{}
	for name, set := range ids {
		out[corev1.ResourceName(name)] = int64(len(set))
	}
	return out
}

// Release implements topology.Provider.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	_, had := m.pool.pods[uid]
	delete(m.pool.pods, uid)
	m.mu.Unlock()
	if had {
		m.save()
	}
}

// Retain implements topology.Provider.
func (m *Manager) Retain(alive func(types.UID) bool) {
	m.mu.Lock()
	had := len(m.pool.pods)
	maps.DeleteFunc(m.pool.pods, func(uid types.UID, _ shares) bool { return !alive(uid) })
	fewer := len(m.pool.pods) < had
	m.mu.Unlock()
	if fewer {
		m.save()
	}
}

// users returns the pods that have devices of a resource. The caller holds mu.
func (m *Manager) users(name string) []types.UID {
	var out []types.UID
	for uid, containers := range m.pool.pods {
		for _, has := range containers {
			if has[name] != nil {
				out = append(out, uid)
				break
			}
		}
	}
	return out
}

// save writes the checkpoint if it has changed. A failure does not prevent pods from
// running.
func (m *Manager) save() {
	m.saveMu.Lock()
	defer m.saveMu.Unlock()
	m.mu.Lock()
	data := m.pool.data()
	m.mu.Unlock()
	content, err := checkpoint.Encode(data)
	if err == nil && string(content) != m.saved {
		if err = os.MkdirAll(m.cfg.Dir, 0o750); err == nil {
			err = checkpoint.Write(m.cfg.Dir, content)
		}
	}
	if err != nil {
		m.log.Error("failed to write the device checkpoint", zap.Error(err))
		return
	}
	m.saved = string(content)
}

// removeSockets removes the sockets of plugins from the folder, so that the plugins register again.
func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	var errs []error
	for _, e := range entries {
		if e.Type()&os.ModeSocket != 0 {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(append(errs, err)...)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
