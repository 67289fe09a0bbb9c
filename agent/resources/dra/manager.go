// Package dra is the node's part of dynamic resource allocation: it calls the DRA drivers of the node, which prepare
// the devices of resource claims for pods.
//
//   - manager.go: the interface to the agent, and what runs beside the pods.
//   - driver.go: drivers, which register through package pluginwatcher.
//   - prepare.go: calls to drivers before a pod's first container starts, and after its last one has ended.
//   - health.go: the health of devices, which drivers report, for the status of pods.
//   - ledger.go: the claims that are prepared, in a checkpoint, so that each is unprepared although the process was
//     killed.
//   - slices.go: removal of the ResourceSlices of drivers that no longer exist.
package dra

import (
	"context"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"

	"monopod/agent/host/checkpoint"
	"monopod/agent/podapi/spec"
	"monopod/agent/resources/topology"
	"monopod/apiserver/kit/guard"
)

// Config of a Manager. All fields are required.
type Config struct {
	API   API
	File  checkpoint.File
	Clock clock.WithTicker
	Log   *zap.Logger
	Dial  func(ctx context.Context, path string) (net.Conn, error)
	// Registered is called when a driver has registered. It must not block.
	Registered func(driver string)
	// Health is called when the health of devices of pods has changed. It must not block.
	Health func(pods []types.UID)
	Guard  *guard.Guard
}

// API is what a Manager needs of the API.
type API interface {
	Claim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// Slices returns the node's slices of a driver; "": of all.
	Slices(ctx context.Context, driver string) ([]*resourcev1.ResourceSlice, error)
	// RemoveSlice removes a slice, unless it was removed or replaced.
	RemoveSlice(ctx context.Context, slice *resourcev1.ResourceSlice) error
}

// Manager calls drivers for the claims of pods.
type Manager struct {
	cfg  Config
	lost error         // why the checkpoint could not be read
	wake chan struct{} // for run
	work sync.WaitGroup

	metrics metrics

	mu      sync.Mutex      // guards what follows
	life    context.Context // of Start; nil: not started, or waited for
	running bool            // run runs
	drivers map[string][]*driver
	claims  map[types.UID]*claim
	// when the slices of a driver that no longer exists are removed; "": of every driver that is not registered
	removeSlicesAt map[string]time.Time

	saveMu sync.Mutex // one write of the checkpoint at a time, always the newest state
}

var _ topology.Provider = (*Manager)(nil)

// New restores the checkpoint. A damaged one is set aside, as Lost reports: then claims are prepared again when a
// container needs them, but those of pods that have been deleted meanwhile stay prepared.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, wake: make(chan struct{}, 1), metrics: newMetrics(cfg.Clock), drivers: map[string][]*driver{},
		claims: map[types.UID]*claim{}, removeSlicesAt: map[string]time.Time{}}
	m.restore()
	return m
}

// Lost returns why the checkpoint was lost; nil: it was restored.
func (m *Manager) Lost() error { return m.lost }

const (
	// returnGrace is how long a driver may be away before its slices are removed (upstream: 30 s).
	returnGrace = 30 * time.Second
	// retryInterval is the interval of attempts to do what has failed.
	retryInterval = 30 * time.Second
)

// Start makes the manager read the health that drivers report, remove the slices of drivers that no longer exist, and
// unprepare the claims of pods that were removed while no agent ran, until ctx ends. Goroutines run only while there is
// something to do; wait waits for them, once ctx has ended and no driver registers any more.
func (m *Manager) Start(ctx context.Context) (wait func()) {
	m.mu.Lock()
	m.removeSlicesAt[""] = m.cfg.Clock.Now().Add(returnGrace)
	m.life = ctx
	m.mu.Unlock()
	m.poke()
	return func() {
		m.mu.Lock()
		m.life = nil
		m.mu.Unlock()
		m.work.Wait()
	}
}

// poke makes tidy run.
func (m *Manager) poke() {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.life == nil || m.life.Err() != nil:
	case m.running:
		select {
		case m.wake <- struct{}{}:
		default:
		}
	default:
		m.running = true
		ctx := m.life
		m.cfg.Guard.Go(&m.work, "dra", func() {
			defer m.stop(true)
			m.run(ctx)
		})
	}
}

// stop reports whether run may end: nothing has changed since it looked, or it must.
func (m *Manager) stop(must bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.wake:
		if !must {
			return false
		}
	default:
	}
	m.running = false
	return true
}

// run does what is due until there is nothing more.
func (m *Manager) run(ctx context.Context) {
	for ctx.Err() == nil {
		healthReader{m}.watch(ctx)
		wait, waits := m.cleanUp(ctx)
		if !waits {
			if m.stop(false) {
				return
			}
			continue
		}
		timer := m.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-m.wake:
		}
		timer.Stop()
	}
}

// cleanUp does what is due, and returns when to look again; waits: otherwise not before there is news.
func (m *Manager) cleanUp(ctx context.Context) (wait time.Duration, waits bool) {
	next := func(d time.Duration) {
		if !waits || d < wait {
			wait, waits = d, true
		}
	}
	if m.unprepareOrphans(ctx) != nil {
		next(retryInterval)
	}
	for driver, left := range m.slicesToRemove() {
		if left > 0 {
			next(left)
		} else if err := m.removeSlices(ctx, driver); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("failed to remove the ResourceSlices of a DRA driver that is gone", zap.String("driver", driver),
				zap.Error(err))
			next(retryInterval)
		} else {
			m.slicesRemoved(driver)
		}
	}
	return wait, waits
}

// Hints implements topology.Provider: devices have their nodes from the scheduler.
func (m *Manager) Hints(*corev1.Pod, *corev1.Container) map[string][]topology.Hint { return nil }

// PodHints implements topology.Provider.
func (m *Manager) PodHints(*corev1.Pod) map[string][]topology.Hint { return nil }

// Allocate implements topology.Provider: the scheduler has allocated.
func (m *Manager) Allocate(context.Context, *corev1.Pod, *corev1.Container, topology.Hint) error {
	return nil
}

// Recover implements topology.Provider.
func (m *Manager) Recover([]topology.Container) {}

// Release implements topology.Provider. Unprepare releases, because it can fail.
func (m *Manager) Release(types.UID) {}

// Retain implements topology.Provider.
func (m *Manager) Retain(alive func(types.UID) bool) {
	if m.forget(alive) {
		m.poke()
	}
}

// Allotment implements topology.Provider: the CDI devices of the claims that a container uses. Claims are prepared
// before, except after the loss of the checkpoint.
func (m *Manager) Allotment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (out spec.Allotment, err error) {
	all := claimUses(pod, c)
	if len(all) == 0 {
		return out, nil
	}
	if !m.Holds(pod.UID) {
		if err := m.Prepare(ctx, pod); err != nil {
			return out, err
		}
	}
	seen := map[string]bool{}
	for _, use := range all {
		devices, err := m.devicesOf(pod, use)
		if err != nil {
			return out, err
		}
		for _, d := range devices {
			for _, id := range d.CDI {
				if !seen[id] {
					seen[id] = true
					out.CDI = append(out.CDI, &cri.CDIDevice{Name: id})
				}
			}
		}
	}
	return out, nil
}

// Resources returns the devices of a container's claims, for the podresources API.
func (m *Manager) Resources(pod *corev1.Pod, c *corev1.Container) (out []*podresources.DynamicResource) {
	for _, use := range claimUses(pod, c) {
		devices, err := m.devicesOf(pod, use)
		if err != nil {
			continue
		}
		r := &podresources.DynamicResource{ClaimName: use.claim, ClaimNamespace: pod.Namespace}
		for _, d := range devices {
			one := &podresources.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Device}
			for _, id := range d.CDI {
				one.CdiDevices = append(one.CdiDevices, &podresources.CDIDevice{Name: id})
			}
			r.ClaimResources = append(r.ClaimResources, one)
		}
		out = append(out, r)
	}
	return out
}
