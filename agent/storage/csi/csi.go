// Package csi is the node's part of the Container Storage Interface: it calls the CSI drivers of the node, which mount
// volumes for pods.
//
//   - driver.go: drivers, which register through package plugins.
//   - csinode.go: what drivers say about the node, in its CSINode, labels and annotation.
//   - setup.go: a volume of a pod: attached, staged, published.
//   - teardown.go: unpublished, and unstaged when no pod of the node uses it any more.
//   - records.go: the files that tell, after a restart, what is staged and published.
//   - call.go: the parts of requests that say how a volume is used: capability, context, secrets, tokens.
//   - expand.go: expansion of file systems.
//   - stats.go: usage and health.
//
// A record is written before the call that it is about and removed after the call that undoes it, so a process that
// is killed in between repeats calls, which drivers must accept (CSI: calls are idempotent). Without a driver nothing
// runs.
package csi

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/host"
	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
)

// Mounter tells and changes what is mounted on this machine.
type Mounter interface {
	// Mounted reports whether something is mounted on path.
	Mounted(path string) (bool, error)
}

// Tokens provides service account tokens for drivers.
type Tokens interface {
	Token(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (value string,
		expires time.Time, err error)
	Forget(pod types.UID)
}

// Config of a Manager. All fields are required.
type Config struct {
	Client  client.Client
	Clock   clock.WithTicker
	Log     *zap.Logger
	Guard   *guard.Guard
	Metrics *follow.Metrics
	Mounter Mounter
	Tokens  Tokens
	Dir     string // the data folder
	Boot    string // differs after each boot of the machine
	Dial    func(ctx context.Context, path string) (net.Conn, error)
	// Node returns the stored Node, or before its registration the one to register.
	Node func() *corev1.Node
	// SELinux reports whether SELinux is enabled.
	SELinux func() bool
	// Changed is called when pods that wait for a driver, or for the attachment of a volume, can go on. It must not
	// block.
	Changed func()
	// Event records an event about a pod.
	Event func(pod *corev1.Pod, eventType, reason, format string, args ...any)
}

// Manager calls the CSI drivers of the node. It is safe for concurrent use.
type Manager struct {
	cfg   Config
	calls *prometheus.HistogramVec

	mu      sync.Mutex // guards what follows
	life    context.Context
	begun   bool              // begin has started run
	loop    *follow.Loop[key] // nil: it does not run
	running sync.WaitGroup
	drivers map[string]*driver
	volumes map[id]*device

	node sync.Mutex // one change of the CSINode, or of the Node, at a time
}

// New reads the records of an earlier process.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, drivers: map[string]*driver{}, volumes: map[id]*device{}}
	m.calls = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "csi_operations_seconds",
		Help:    "Duration of calls to CSI drivers.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}},
		[]string{"driver_name", "method_name", "grpc_status_code", "migrated"})
	return m, m.readRecords()
}

// Metrics returns the collector of the manager's metrics.
func (m *Manager) Metrics() prometheus.Collector { return m.calls }

// Start lets drivers register, until ctx ends. If an earlier process has left volumes, it begins to unstage those that
// no pod uses. wait waits for everything that Start has begun; it must be called after ctx has ended.
func (m *Manager) Start(ctx context.Context) (wait func()) {
	m.mu.Lock()
	m.life = ctx
	left := len(m.volumes) > 0
	m.mu.Unlock()
	if left || len(m.cfg.Node().Status.VolumesInUse) > 0 {
		m.begin()
	}
	return m.running.Wait
}

// begin starts the loop, once.
func (m *Manager) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begun || m.life == nil || m.life.Err() != nil {
		return
	}
	m.begun = true
	ctx := m.life
	m.cfg.Guard.Go(&m.running, "csi", func() {
		m.cfg.Guard.Keep(ctx, m.cfg.Clock, "csi", func() { guard.Raise(m.run(ctx)) })
	})
}

// run runs a loop until ctx ends. It begins with everything that there can be to do.
func (m *Manager) run(ctx context.Context) error {
	cfg := follow.Config[key]{Name: "csi", Sources: m.sources(), Reconcile: m.reconcile, Start: []key{{inUse: true}}}
	m.mu.Lock()
	for name := range m.drivers {
		cfg.Start = append(cfg.Start, key{limit: name})
	}
	for id := range m.volumes {
		cfg.Start = append(cfg.Start, key{idle: id})
	}
	loop := follow.New(follow.Deps{
		Client: m.cfg.Client, Clock: m.cfg.Clock, Log: m.cfg.Log, Metrics: m.cfg.Metrics, Guard: m.cfg.Guard,
	}, cfg)
	m.loop = loop
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.loop = nil
		m.mu.Unlock()
	}()
	return loop.Run(ctx)
}

// wake adds a key to the loop, if one runs: run begins with all keys. mu must be held.
func (m *Manager) wake(k key) {
	if m.loop != nil {
		m.loop.Add(k)
	}
}

// id names a volume of a driver.
type id struct{ driver, handle string }

// unique is the name of the volume in the status of nodes.
func (v id) unique() corev1.UniqueVolumeName { return claim.UniqueName(v.driver, v.handle) }

// attachment is the name of the VolumeAttachment of the volume to a node.
func (v id) attachment(node string) string { return claim.AttachmentName(v.driver, v.handle, node) }

// device is a volume that pods of this node use, or that is staged.
type device struct {
	id
	turn chan struct{} // holds a value while somebody calls the driver for the volume

	// The Manager's mu guards what follows.
	users    map[string]*user // by folder of the pod's volume
	staged   *record          // nil: it is not staged
	known    bool             // the driver has staged it for this process
	attached bool             // the driver needs an attachment
}

// user is a pod that uses a device.
type user struct {
	pod       types.UID
	volume    *Volume   // nil: a record of an earlier process, whose pod has not been set up yet
	published bool      // by this process, or found mounted
	republish time.Time // zero: never
}

// lock waits for the device's turn.
func (d *device) lock(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another call of driver %s for volume %s is running: %w", d.driver, d.handle, ctx.Err())
	}
}

func (d *device) unlock() { <-d.turn }

// device returns the device of a volume, which it adds if it is missing. mu must be held.
func (m *Manager) device(v id) *device {
	d := m.volumes[v]
	if d == nil {
		d = &device{id: v, turn: make(chan struct{}, 1), users: map[string]*user{}}
		m.volumes[v] = d
	}
	return d
}

// use makes a pod a user of a device.
func (m *Manager) use(v *Volume, attached bool) (*device, *user) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.device(v.id())
	d.attached = attached
	u := d.users[v.Dir]
	if u == nil {
		u = &user{pod: v.Pod.UID}
		d.users[v.Dir] = u
	}
	u.volume = v
	return d, u
}

// Due reports whether a volume of the pod must be published again, because its driver asks for that.
func (m *Manager) Due(pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.drivers) == 0 {
		return false
	}
	now := m.cfg.Clock.Now()
	for _, d := range m.volumes {
		for _, u := range d.users {
			if u.pod == pod && !u.republish.IsZero() && !now.Before(u.republish) {
				return true
			}
		}
	}
	return false
}

// key is what the loop has to do: exactly one field is set.
type key struct {
	idle  id         // unstage the volume if no pod uses it
	claim follow.Key // expand the volume of a claim
	inUse bool       // write which volumes are in use
	limit string     // ask the driver how many volumes the node may have
}

func (m *Manager) reconcile(ctx context.Context, k key) (time.Duration, error) {
	switch {
	case k.inUse:
		return 0, m.reportInUse(ctx)
	case k.limit != "":
		return m.updateLimit(ctx, k.limit)
	case k.claim.Name != "":
		return 0, m.expandClaim(ctx, k.claim)
	}
	return 0, m.unstage(ctx, k.idle)
}

func (m *Manager) sources() []follow.Source[key] {
	return []follow.Source[key]{
		{Selector: client.Selector{Resource: client.Nodes,
			Fields: fields.OneTermEqualSelector("metadata.name", m.cfg.Node().Name)}, Keys: follow.Plain(m.onNode)},
		{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: follow.Plain(m.onClaim)},
	}
}

// onNode wakes pods when a volume was attached to this node.
func (m *Manager) onNode(old, new client.Object) []key {
	node, _ := new.(*corev1.Node)
	if node == nil {
		return nil
	}
	was, _ := old.(*corev1.Node)
	if slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool {
		return was == nil || !slices.Contains(was.Status.VolumesAttached, v)
	}) {
		m.cfg.Changed()
	}
	return nil
}

// visible returns the path at which a driver finds a path of the data folder: pods of drivers mount the data folder at
// the path that they know as the kubelet's.
func (m *Manager) visible(d *driver, path string) string {
	if rest, ok := strings.CutPrefix(path, m.cfg.Dir+"/"); ok && strings.HasPrefix(d.endpoint, host.KubeletDir+"/") {
		return host.KubeletDir + "/" + rest
	}
	return path
}
