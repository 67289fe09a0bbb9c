package dra

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	"k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"monopod/agent/podapi/spec"
	"monopod/apiserver/kit/backoff"
)

const (
	// healthTimeout is how long a report of a device's health is valid if the driver does not specify it (upstream: 30 s).
	healthTimeout = 30 * time.Second
	// A broken stream is reopened after firstRetry, doubled each time up to lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = time.Minute
	// maxHealth is the number of devices of a driver whose health is kept (upstream: 16384).
	maxHealth = 16384
)

// deviceID names a device of a driver.
type deviceID struct{ pool, device string }

// health is the last report of a driver about a device.
type health struct {
	status  corev1.ResourceHealthStatus
	message string
	until   time.Time // after that the health is unknown
}

// watcher opens the stream of a driver's health reports.
type watcher func(ctx context.Context) (v1.DRAResourceHealth_NodeWatchResourcesClient, error)

// watcherOf returns the watcher of a driver; nil: the driver does not report health.
func watcherOf(conn grpc.ClientConnInterface, versions []string) watcher {
	request := &v1.NodeWatchResourcesRequest{}
	switch {
	case slices.Contains(versions, v1.DRAResourceHealthService):
		return func(ctx context.Context) (v1.DRAResourceHealth_NodeWatchResourcesClient, error) {
			return v1.NewDRAResourceHealthClient(conn).NodeWatchResources(ctx, request)
		}
	case slices.Contains(versions, v1alpha1.DRAResourceHealthService):
		return func(ctx context.Context) (v1.DRAResourceHealth_NodeWatchResourcesClient, error) {
			return v1.V1Alpha1ClientWrapper{Client: v1alpha1.NewDRAResourceHealthClient(conn)}.NodeWatchResources(ctx, request)
		}
	}
	return nil
}

// healthReader reads the health reports of drivers.
type healthReader struct{ *Manager }

// watch starts to read the streams of drivers that have registered since the last call.
func (m healthReader) watch(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range m.drivers {
		for _, d := range all {
			if d.watch != nil && !d.watched {
				d.watched = true
				m.cfg.Guard.Go(&m.work, "dra health", func() { m.read(ctx, d) })
			}
		}
	}
}

// read reads a driver's stream until ctx ends, the driver disconnects, or the driver does not implement the stream.
func (m healthReader) read(ctx context.Context, d *driver) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	retry := backoff.Retry{First: firstRetry, Most: lastRetry}
	for {
		err := m.readOne(ctx, d)
		m.forget(d)
		if ctx.Err() != nil || status.Code(err) == codes.Unimplemented {
			return
		}
		m.cfg.Log.Warn("the health stream of a DRA driver ended, opening it again", zap.String("driver", d.name),
			zap.Error(err))
		if !retry.Wait(ctx, m.cfg.Clock) {
			return
		}
	}
}

func (m healthReader) readOne(ctx context.Context, d *driver) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.watch(ctx)
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		m.record(d, resp.GetDevices())
	}
}

// record records a report, and wakes the pods whose devices have changed. Devices that the report omits keep their
// health until it expires.
func (m healthReader) record(d *driver, devices []*v1.DeviceHealth) {
	now := m.cfg.Clock.Now()
	changed := map[deviceID]bool{}
	m.mu.Lock()
	if d.health == nil {
		d.health = map[deviceID]health{}
	}
	for id, h := range d.health {
		if now.After(h.until) {
			delete(d.health, id)
			changed[id] = true
		}
	}
	for _, one := range devices {
		id := deviceID{one.GetDevice().GetPoolName(), one.GetDevice().GetDeviceName()}
		was, known := d.health[id]
		if !known && len(d.health) >= maxHealth {
			continue
		}
		h := healthOf(one, now)
		d.health[id] = h
		if changed[id] = changed[id] || !known || was.status != h.status || was.message != h.message; !changed[id] {
			delete(changed, id)
		}
	}
	pods := m.usersOf(d.name, func(id deviceID) bool { return changed[id] })
	m.mu.Unlock()
	if len(pods) > 0 {
		m.cfg.Health(pods)
	}
}

func healthOf(one *v1.DeviceHealth, now time.Time) health {
	h := health{status: corev1.ResourceHealthStatusUnknown, message: one.GetMessage(), until: now.Add(healthTimeout)}
	switch one.GetHealth() {
	case v1.HealthStatus_HEALTHY:
		h.status = corev1.ResourceHealthStatusHealthy
	case v1.HealthStatus_UNHEALTHY:
		h.status = corev1.ResourceHealthStatusUnhealthy
	}
	if s := one.GetHealthCheckTimeoutSeconds(); s > 0 {
		h.until = now.Add(time.Duration(min(s, int64(24*time.Hour/time.Second))) * time.Second)
	}
	if len(h.message) > corev1.ResourceHealthMessageMaxLength {
		h.message = h.message[:corev1.ResourceHealthMessageMaxLength-3] + "..."
	}
	return h
}

// forget forgets the health of a driver's devices.
func (m healthReader) forget(d *driver) {
	m.mu.Lock()
	had := d.health
	d.health = nil
	pods := m.usersOf(d.name, func(id deviceID) bool { _, ok := had[id]; return ok })
	m.mu.Unlock()
	if len(pods) > 0 {
		m.cfg.Health(pods)
	}
}

// usersOf returns the pods that have the given devices of a driver. The caller holds mu.
func (m *Manager) usersOf(driver string, which func(deviceID) bool) (pods []types.UID) {
	for _, c := range m.claims {
		if slices.ContainsFunc(c.Devices,
			func(d Device) bool { return d.Driver == driver && which(deviceID{d.Pool, d.Device}) }) {
			pods = append(pods, c.Pods...)
		}
	}
	return pods
}

// Health returns the health of the devices of each container, for the pod's status; nil: the pod has no prepared
// devices.
func (m *Manager) Health(pod *corev1.Pod) map[string][]corev1.ResourceStatus {
	var out map[string][]corev1.ResourceStatus
	for _, c := range spec.Containers(&pod.Spec) {
		for _, use := range claimUses(pod, c) {
			devices, err := m.devicesOf(pod, use)
			if err != nil || len(devices) == 0 {
				continue
			}
			if out == nil {
				out = map[string][]corev1.ResourceStatus{}
			}
			out[c.Name] = append(out[c.Name], corev1.ResourceStatus{Name: use.title, Resources: m.healthOf(devices)})
		}
	}
	return out
}

func (m *Manager) healthOf(devices []Device) (out []corev1.ResourceHealth) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Clock.Now()
	for _, d := range devices {
		one := corev1.ResourceHealth{ResourceID: corev1.ResourceID(fmt.Sprintf("%s/%s/%s", d.Driver, d.Pool, d.Device)),
			Health: corev1.ResourceHealthStatusUnknown}
		if len(d.CDI) > 0 {
			one.ResourceID = corev1.ResourceID(d.CDI[0])
		}
		if all := m.drivers[d.Driver]; len(all) > 0 {
			if h, ok := all[len(all)-1].health[deviceID{d.Pool, d.Device}]; ok && !now.After(h.until) {
				one.Health = h.status
				if h.message != "" {
					one.Message = &h.message
				}
			}
		}
		if !slices.ContainsFunc(out, func(other corev1.ResourceHealth) bool { return other.ResourceID == one.ResourceID }) {
			out = append(out, one)
		}
	}
	return out
}
