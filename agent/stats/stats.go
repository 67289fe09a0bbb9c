// Package stats measures the usage of the node, its pods and their containers. It measures only on request, except for
// the history.
//
//   - Source reads containers from the runtime, pods from their cgroups, the node from /proc, and walks folders.
//   - Summary returns upstream's /stats/summary.
//   - Metrics returns the objects of metrics.k8s.io.
//   - Handler serves the summary, /metrics/resource and, from the files of cgroups alone, /metrics/cadvisor.
//
// CPU usage is a sum since the start, so a rate needs two samples. Source keeps the last samples and, if there are
// none, takes two shortly after each other.
package stats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/host"
	"monopod/agent/podapi/spec"
	"monopod/agent/resources/cgroup"
	"monopod/agent/storage/csi"
	"monopod/agent/storage/volume"
	api "monopod/apiserver/kit/volume"
)

// Runtime is the part of the agent's runtime that has statistics.
type Runtime interface {
	ListContainerStats(ctx context.Context, filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error)
	ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error)
}

// Pod is a pod with running containers.
type Pod struct {
	*corev1.Pod
	Started map[string]time.Time // by container id
	// Instances are the sandbox and the running containers.
	Instances []Instance
	Claims    []Claim
	LogDir    string
	Dir       string // parent of volumes/
}

// Config configures a Source. All fields except Cgroups are required.
type Config struct {
	Node      string
	Labels    map[string]string // selects the agent's containers
	Runtime   Runtime
	Cgroups   *cgroup.Manager // nil: a pod's usage is the sum of its containers'
	Clock     clock.WithTicker
	Pods      func() []Pod
	Dir       string // on the node's file system
	ImageRoot string // on the file system of images
	// Driver asks the CSI driver that mounted a volume at dir for its usage, like csi.Manager.Usage; nil: there are no
	// drivers.
	Driver func(ctx context.Context, dir string) (u csi.Usage, ok bool, err error)
}

// Source measures usage.
type Source struct {
	cfg   Config
	token chan struct{} // contains one token, whose holder may use the fields below
	base  *reading      // an older sample; nil: none
	last  *reading      // the last sample, at least minWindow younger than base

	history history
}

// New returns a Source without samples.
func New(cfg Config) *Source {
	s := &Source{cfg: cfg, token: make(chan struct{}, 1)}
	s.token <- struct{}{}
	return s
}

// The minimum and maximum time between two samples for a rate, and the time if there is no earlier sample.
const (
	minWindow   = time.Second
	maxWindow   = 5 * time.Minute
	firstWindow = 500 * time.Millisecond
)

// ErrNoStatistics means that the runtime has no statistics.
var ErrNoStatistics = errors.New("the container runtime has no statistics")

// container is the usage of one container in a sample.
type container struct {
	id, name  string
	uid       types.UID
	attempt   uint32
	running   bool      // an ended container has disk usage only
	startedAt time.Time // zero: not known
	stats     *cri.ContainerStats
}

func (c *container) cpu() uint64 { return c.stats.GetCpu().GetUsageCoreNanoSeconds().GetValue() }

func (c *container) memory() uint64 { return c.stats.GetMemory().GetWorkingSetBytes().GetValue() }

// reading is a sample of the node, the pods and the containers.
type reading struct {
	at         time.Time
	node       host.Usage
	pods       []Pod
	containers map[types.UID][]*container
	cgroups    map[types.UID]cgroup.Usage
	sums       map[string]uint64 // CPU time by node, pod/<uid>, container id
}

const nodeKey = "node"

func podKey(uid types.UID) string { return "pod/" + string(uid) }

// read takes a sample of CPU and memory.
func (s *Source) read(ctx context.Context) (*reading, error) {
	r := &reading{pods: s.cfg.Pods(), containers: map[types.UID][]*container{}, cgroups: map[types.UID]cgroup.Usage{},
		sums: map[string]uint64{}}
	list, err := s.cfg.Runtime.ListContainerStats(ctx, &cri.ContainerStatsFilter{LabelSelector: s.cfg.Labels})
	if status.Code(err) == codes.Unimplemented {
		return nil, ErrNoStatistics
	}
	if err != nil {
		return nil, fmt.Errorf("statistics of containers: %w", err)
	}
	if r.node, err = host.ReadUsage(); err != nil {
		return nil, fmt.Errorf("statistics of the node: %w", err)
	}
	r.at = s.cfg.Clock.Now()
	r.sums[nodeKey] = r.node.CPU
	for _, c := range list {
		r.add(c)
	}
	for _, p := range r.pods {
		s.readPod(r, p)
	}
	return r, nil
}

// add adds a container; of two with the same name the later attempt counts.
func (r *reading) add(stats *cri.ContainerStats) {
	a := stats.GetAttributes()
	uid := types.UID(spec.IdentityOf(a.GetLabels()).UID)
	c := &container{id: a.GetId(), uid: uid, stats: stats, name: a.GetLabels()[spec.LabelContainerName],
		attempt: a.GetMetadata().GetAttempt()}
	for i, other := range r.containers[uid] {
		if other.name == c.name {
			if c.attempt > other.attempt {
				r.containers[uid][i] = c
			}
			return
		}
	}
	r.containers[uid] = append(r.containers[uid], c)
}

// running returns the pod's running containers. Upstream does not report others.
func (r *reading) running(p Pod) []*container {
	return slices.DeleteFunc(slices.Clone(r.containers[p.UID]), func(c *container) bool { return !c.running })
}

// readPod adds the usage of the pod as a whole: that of its cgroup, or else the sum of its containers.
func (s *Source) readPod(r *reading, p Pod) {
	var sum cgroup.Usage
	for _, c := range r.containers[p.UID] {
		c.startedAt, c.running = p.Started[c.id]
		r.sums[c.id] = c.cpu()
		m := c.stats.GetMemory()
		sum.CPU += c.cpu()
		sum.WorkingSet += c.memory()
		sum.Memory += m.GetUsageBytes().GetValue()
		sum.RSS += m.GetRssBytes().GetValue()
		sum.PageFaults += m.GetPageFaults().GetValue()
		sum.MajorFault += m.GetMajorPageFaults().GetValue()
	}
	if s.cfg.Cgroups != nil {
		if u, err := s.cfg.Cgroups.Usage(p.Pod); err == nil { // it fails when the pod is just ending
			sum = u
		}
	}
	r.cgroups[p.UID], r.sums[podKey(p.UID)] = sum, sum.CPU
}

// sample returns a new sample and an older one for rates; from is nil if there is none. With wait, from is never nil:
// the first caller waits for a second sample, and callers within minWindow share a sample, so that many autoscalers
// cost no more than one.
func (s *Source) sample(ctx context.Context, wait bool) (now, from *reading, err error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-s.token:
	}
	defer func() { s.token <- struct{}{} }()
	if wait && s.base != nil && s.cfg.Clock.Since(s.last.at) < minWindow {
		return s.last, s.base, nil
	}
	if now, err = s.read(ctx); err != nil {
		return nil, nil, err
	}
	if s.last == nil || now.at.Sub(s.last.at) > maxWindow {
		s.base, s.last = nil, now
		if !wait {
			return now, nil, nil
		}
		return s.secondSample(ctx)
	}
	if now.at.Sub(s.last.at) >= minWindow {
		s.base, s.last = s.last, now
	}
	if s.base == nil && wait {
		return s.secondSample(ctx)
	}
	return now, s.base, nil
}

// secondSample takes another sample shortly after the first.
func (s *Source) secondSample(ctx context.Context) (now, from *reading, err error) {
	timer := s.cfg.Clock.NewTimer(firstWindow)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-timer.C():
	}
	if now, err = s.read(ctx); err != nil {
		return nil, nil, err
	}
	s.base, s.last = s.last, now
	return now, s.base, nil
}

// rate returns the nanocores that key used between two samples; false if unknown. startedAt is its start time, which
// may be later than from.
func (r *reading) rate(from *reading, key string, startedAt time.Time) (nanocores uint64, ok bool) {
	if from == nil {
		return 0, false
	}
	since, before := from.at, from.sums[key]
	if _, known := from.sums[key]; !known {
		if startedAt.IsZero() || startedAt.Before(from.at) {
			return 0, false
		}
		since = startedAt
	}
	window, sum := r.at.Sub(since), r.sums[key]
	if window <= 0 || sum < before {
		return 0, false
	}
	return uint64(float64(sum-before) / window.Seconds()), true
}

// volumes returns the folders of the pod's volumes on the node's disk, by name.
func (p Pod) volumes() map[string]string {
	out := map[string]string{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if _, counts := api.All().Usage(v); counts {
			out[v.Name] = volume.Dir(p.Dir, v)
		}
	}
	return out
}
