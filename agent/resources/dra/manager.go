// Package dra is the node's part of dynamic resource allocation: it calls the DRA drivers of the node, which prepare
// the devices of ResourceClaims for pods.
//
//   - manager.go: the interface to the agent, and the cleanup in the background.
//   - driver.go: drivers, which register through package plugins.
//   - prepare.go: the calls to drivers before a pod's first container starts, and after its last one has ended.
//   - health.go: the health of devices, which drivers report, for the status of pods.
//   - ledger.go: the prepared claims, in a checkpoint, so that each is unprepared also if the process was killed.
//   - slices.go: removal of the ResourceSlices of drivers that no longer exist.
package dra

import (
	"context"
	"maps"
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

// API contains the calls to the API server that a Manager needs.
type API interface {
	Claim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// Slices returns the node's slices of a driver; "": of all drivers.
	Slices(ctx context.Context, driver string) ([]*resourcev1.ResourceSlice, error)
	// RemoveSlice removes a slice, unless it was already removed or replaced.
	RemoveSlice(ctx context.Context, slice *resourcev1.ResourceSlice) error
}

// Manager calls drivers for the claims of pods.
type Manager struct {
	cfg  Config
	lost error         // why the checkpoint was set aside; nil: it was restored
	wake chan struct{} // for run
	work sync.WaitGroup

	metrics metrics

	mu      sync.Mutex      // guards what follows
	life    context.Context // of Start; nil: not started, or waited for
	running bool            // run runs
	drivers map[string][]*driver
	claims  map[types.UID]*claim
	// removeSlicesAt is when the slices of a driver that has disconnected are removed; "": of every driver that is not
	// registered.
	removeSlicesAt map[string]time.Time

	saveMu sync.Mutex // one write of the checkpoint at a time, always the newest state
}

var _ topology.Provider = (*Manager)(nil)

// New restores the checkpoint. It sets a damaged checkpoint aside, which Lost reports. Then claims are prepared again
// when a container needs them, but the claims of pods that were deleted meanwhile stay prepared.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, wake: make(chan struct{}, 1), metrics: newMetrics(cfg.Clock), drivers: map[string][]*driver{},
		claims: map[types.UID]*claim{}, removeSlicesAt: map[string]time.Time{}}
	m.restore()
	return m
}

// Lost returns why the checkpoint was set aside; nil: it was restored.
func (m *Manager) Lost() error { return m.lost }

const (
	// returnGrace is how long a driver may be away before its slices are removed (upstream: 30 s).
	returnGrace = 30 * time.Second
	// retryInterval is the interval at which failed cleanup is retried.
	retryInterval = 30 * time.Second
)

// Start starts to read the health reports of drivers, to remove the slices of drivers that no longer exist, and to
// unprepare the claims of pods that were removed while no agent ran, until ctx ends. Goroutines run only while there is
// something to do. wait waits for them; it must be called after ctx has ended, when no driver can register any more.
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

// poke triggers cleanUp.
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

// stop reports whether run may end: poke was not called since cleanUp, or must is true.
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

// run cleans up until nothing is left to do.
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

// cleanUp unprepares orphaned claims and removes ResourceSlices that are due. It returns when to call it again; waits
// is false if only a poke requires that.
func (m *Manager) cleanUp(ctx context.Context) (wait time.Duration, waits bool) {
	next := func(d time.Duration) {
		if !waits || d < wait {
			wait, waits = d, true
		}
	}
	if m.unprepareOrphans(ctx) != nil {
		next(retryInterval)
	}
	m.mu.Lock()
	removeAt := maps.Clone(m.removeSlicesAt)
	m.mu.Unlock()
	for driver, at := range removeAt {
		if left := at.Sub(m.cfg.Clock.Now()); left > 0 {
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

// Hints implements topology.Provider. There are none: the scheduler allocates the devices of claims.
func (m *Manager) Hints(*corev1.Pod, *corev1.Container) map[string][]topology.Hint { return nil }

// PodHints implements topology.Provider.
func (m *Manager) PodHints(*corev1.Pod) map[string][]topology.Hint { return nil }

// Allocate implements topology.Provider. The scheduler has allocated the devices.
func (m *Manager) Allocate(context.Context, *corev1.Pod, *corev1.Container, topology.Hint) error {
	return nil
}

// Recover implements topology.Provider.
func (m *Manager) Recover([]topology.Container) {}

// Release implements topology.Provider. It does nothing: Unprepare releases claims, because that can fail.
func (m *Manager) Release(types.UID) {}

// Retain implements topology.Provider.
func (m *Manager) Retain(alive func(types.UID) bool) {
	if m.forget(alive) {
		m.poke()
	}
}

// Allotment implements topology.Provider. It returns the CDI devices of the claims that a container uses. If the
// checkpoint was lost, it prepares the claims first.
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
