package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/images/image"
	"monopod/agent/images/preload"
	"monopod/agent/node/host"
	"monopod/agent/node/registrar"
	"monopod/agent/node/stream"
	"monopod/agent/pod/probe"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/statuswriter"
	"monopod/agent/pressure/evictor"
	"monopod/agent/resources/userns"
	"monopod/agent/runtime/pleg"
	"monopod/agent/source"
	"monopod/agent/storage/claims"
	"monopod/agent/storage/token"
)

// prepare reads the machine and makes the parts, each after those that it needs.
func (a *Agent) prepare() error {
	for _, part := range []func() error{a.readMachine, a.prepareImages, a.preparePods, a.prepareOwn, a.prepareNode, a.prepareMetrics} {
		if err := part(); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
	}
	return nil
}

// readMachine is about what the node is.
func (a *Agent) readMachine() (err error) {
	if a.capacity, err = host.Capacity(a.cfg.DataDir, a.cfg.MaxPods); err != nil {
		return err
	}
	if err := a.cfg.Reserve.Fits(a.capacity); err != nil {
		return err
	}
	a.allocatable = a.cfg.Reserve.Allocatable(a.capacity, a.cfg.Eviction.Reservation(a.capacity))
	ip := a.cfg.NodeIP
	if ip == "" {
		ip = host.IP().String()
	}
	a.hostIPs = []string{ip}
	if a.node, err = a.newRegistrar(); err != nil {
		return err
	}
	text, err := os.ReadFile(a.cfg.ResolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	a.resolv = spec.ParseResolv(string(text))
	a.cgroups = a.newCgroups()
	return nil
}

func (a *Agent) prepareImages() error {
	pulls, err := image.NewMetrics(a.Metrics)
	if err != nil {
		return err
	}
	a.images = &image.Puller{Runtime: a.Runtime, Clock: a.Clock, Limits: a.cfg.Pulls, ConfigFile: a.cfg.PullConfig, Metrics: pulls}
	a.preload = preload.New(preload.Config{
		Dir: a.cfg.ImageDir, Record: filepath.Join(a.cfg.DataDir, "imported.json"), Runtime: a.Runtime, Clock: a.Clock, Log: a.log, Arrived: a.imagesArrived})
	return nil
}

// preparePods is about hearing of pods, letting them in and telling of them.
func (a *Agent) preparePods() (err error) {
	a.caller = probe.Caller{Exec: a.Runtime, Dial: a.Dial}
	a.tokens = token.New(a.Client, a.Clock)
	a.status = statuswriter.New(a.Client, a.Clock, a.log)
	a.source = source.New(source.Follower{Client: a.Client, Clock: a.Clock, Log: a.log}, a.cfg.NodeName, a.refresh)
	if a.drain, err = newDrain(a); err != nil {
		return err
	}
	a.admit = a.admitHandlers()
	a.users = userns.New(a.podsDir(), a.cfg.MaxPods)
	a.claims = claims.New(claims.Deps{Client: a.Client, Node: a.node.Current, Made: a.madeFor})
	a.mirrors = a.newMirrors()
	a.Streams = stream.New(stream.Deps{
		Runtime: a.Runtime, Clock: a.Clock, Dir: a.logs, Known: a.swept, Behind: a.mirrors.Behind,
		Pod: func(uid types.UID) (stream.Pod, bool) { w := a.pod(uid); return w, w != nil },
	})
	a.manifests, a.statics = a.newManifests(), newStatics()
	return nil
}

// prepareOwn is about what pods have for themselves.
func (a *Agent) prepareOwn() (err error) {
	if a.placement, err = a.newPlacement(); err == nil {
		a.count(a.placement.Processors())
	}
	return err
}

// prepareNode is about what looks after the node.
func (a *Agent) prepareNode() (err error) {
	if a.rotate, err = a.newRotator(); err != nil {
		return err
	}
	if a.collect, err = a.newCollector(); err != nil {
		return err
	}
	a.stats = newStats(a)
	if err := a.Metrics.Register(a.stats.Volumes()); err != nil {
		return err
	}
	a.evict, err = a.newEvictor()
	return err
}

func (a *Agent) prepareMetrics() (err error) {
	a.probed = prometheus.NewRegistry()
	if a.probes, err = probe.NewMetrics(a.probed); err != nil {
		return err
	}
	a.server = a.newServer()
	a.podNode = a.newPodNode()
	a.pleg, err = pleg.New(a.Clock, a.Metrics)
	return err
}

func (a *Agent) newRegistrar() (*registrar.Registrar, error) {
	c := &a.cfg
	return registrar.New(registrar.Deps{
		Client: a.Client, Runtime: a.Runtime, Clock: a.Clock, Log: a.log, Recorder: a.Recorder,
		Resources: func() (capacity, allocatable corev1.ResourceList) { return a.capacity, a.allocatable },
		Offer:     func(next, cur *corev1.NodeStatus, first bool) { a.placement.Offer(next, cur, first) },
		Pressure:  func() []corev1.NodeConditionType { return a.evict.Pressure() },
		Down:      func() bool { return a.drain.down() },
		Learns:    a.PLEG, Ready: a.imagesAt.Find,
	}, registrar.Config{
		NodeName: c.NodeName, Port: c.Port, HostIPs: a.hostIPs, Labels: c.Labels, Taints: c.Taints, StateRestored: c.StateRestored,
		HeartbeatPeriod: c.HeartbeatPeriod, StatusPeriod: c.StatusPeriod, LeaseDuration: c.LeaseDuration,
	})
}

func (a *Agent) newEvictor() (*evictor.Evictor, error) {
	return evictor.New(evictor.Deps{
		Clock: a.Clock, Log: a.log, Metrics: a.Metrics, Node: a.node, Usage: a.stats, Signals: a.Signals,
		Pods: a.evictable, Known: a.knowsPods, Static: a.isStatic, Reclaim: a.collect.Reclaim,
		WatchMemory: a.WatchMemory, WatchUsage: a.WatchUsage,
	}, a.cfg.Eviction)
}
