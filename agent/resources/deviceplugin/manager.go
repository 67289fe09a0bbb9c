// Package deviceplugin lets programs offer devices of the machine to pods: device
// plugins, which speak Kubernetes' device plugin API (v1beta1).
//
// A plugin listens on a socket of its own in Config.Dir and calls Register at
// kubelet.sock there, or puts a socket into Config.Watched. From then on the
// Manager follows its list of devices. As a topology.Provider it gives devices to
// containers; what that means for a container's config the plugin says.
//
//   - Manager: the one place that the agent talks to.
//   - server.go, watcher.go: how plugins come; endpoint.go: one plugin.
//   - pool.go, hints.go: what there is and who has it; pure.
//   - allocate.go: the plugin asked for what a container has.
//
// Who has what is in a file with kubelet's name and form, package checkpoint: a
// container keeps its devices when the agent or the machine starts again.
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

	"monopod/agent/node/socket"
	"monopod/agent/resources/deviceplugin/checkpoint"
	"monopod/agent/resources/topology"
	"monopod/apiserver/process/guard"
)

// stopGrace is how long a plugin may be away before its resource counts as none
// (upstream: 5 minutes).
const stopGrace = 5 * time.Minute

// Config of a Manager. Dir, Clock, Log and Metrics are required.
type Config struct {
	Dir     string         // of plugins' sockets and the checkpoint
	Watched string         // a folder of plugins to be found there; empty: none
	Nodes   topology.Nodes // of the machine

	Clock   clock.Clock
	Log     *zap.Logger
	Metrics prometheus.Registerer

	// Changed is called, not in a hurry, when what the node has may have changed, with
	// the pods that have devices of that resource. It must not wait. nil: nobody cares.
	Changed func(pods []types.UID)
	// Over says of a pod that its containers are dead, though nobody has released it
	// yet. nil: of none.
	Over func(types.UID) bool

	// Listen and Dial are of Unix sockets; nil: the machine's.
	Listen func(path string) (net.Listener, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)
}

// Manager knows the plugins and who has which of their devices.
type Manager struct {
	cfg     Config
	log     *zap.Logger
	guard   *guard.Guard
	metrics *metrics
	lost    error // why the checkpoint could not be read
	fresh   bool  // there is none: Recover writes it

	endpoints sync.WaitGroup

	mu   sync.Mutex      // guards pool, and life until it is set
	life context.Context // of the plugins; set by Run
	pool pool

	saving sync.Mutex // one writes the checkpoint at a time, what is newest then; guards saved
	saved  string     // what is in the file
}

var _ topology.Provider = (*Manager)(nil)

// New reads the checkpoint. One that is damaged is moved aside, as Lost says: then
// Recover learns from the containers who has what.
func New(cfg Config) (*Manager, error) {
	if cfg.Listen == nil {
		cfg.Listen = socket.Listen
	}
	if cfg.Dial == nil {
		cfg.Dial = socket.Dial
	}
	if cfg.Changed == nil {
		cfg.Changed = func([]types.UID) {}
	}
	if cfg.Over == nil {
		cfg.Over = func(types.UID) bool { return false }
	}
	m := &Manager{cfg: cfg, log: cfg.Log, guard: guard.Logging(cfg.Log), pool: newPool()}
	var err error
	if m.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, err
	}
	m.restore()
	return m, nil
}

// restore takes over what the checkpoint says. One of no use is set aside.
func (m *Manager) restore() {
	data, err := checkpoint.Read(m.cfg.Dir)
	if err == nil {
		err = m.pool.restore(data)
	}
	if m.fresh = err != nil; !m.fresh {
		return
	}
	m.pool = newPool()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if m.lost, err = checkpoint.StartOver(m.cfg.Dir, err); err != nil {
		m.lost = err // pods run without
	}
	m.log.Error("the checkpoint of devices is of no use", zap.Error(m.lost))
}

// Lost says why what was known before this start is not known any more; nil: it is.
func (m *Manager) Lost() error { return m.lost }

// Run serves plugins until ctx ends. Where it cannot listen it fails at once.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer m.endpoints.Wait()
	m.mu.Lock()
	m.life = ctx
	for name, r := range m.pool.resources {
		back := r.back
		m.guard.Go(&m.endpoints, "device plugin", func() { m.expire(ctx, name, back) })
	}
	m.mu.Unlock()
	var parts sync.WaitGroup
	defer parts.Wait()
	defer func() {
		m.mu.Lock() // Recover adds to endpoints while life is not over
		defer m.mu.Unlock()
		cancel()
	}()
	if m.cfg.Watched != "" {
		m.guard.Go(&parts, "device plugin", func() { m.watchFolder(ctx) })
	}
	return m.serve(ctx)
}

// Capacity is what the node has and what pods may have of it. A resource whose
// plugin has been away for too long has neither.
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

// Taken is how many devices pods have of each resource.
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

// users are the pods that have devices of a resource. mu is held.
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

// save writes the checkpoint if it says anything new. That it cannot be written
// does not keep pods from running.
func (m *Manager) save() {
	m.saving.Lock()
	defer m.saving.Unlock()
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
		m.log.Error("checkpoint of devices not written", zap.Error(err))
		return
	}
	m.saved = string(content)
}

// removeSockets takes away what plugins that came before have left in the folder:
// that they are gone tells them to register again.
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
