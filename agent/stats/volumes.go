package stats

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/apiserver/kit/guard"
)

// Claim is a PersistentVolumeClaim of a pod. Its volume is mounted at Dir.
type Claim struct{ Volume, Name, Dir string }

// Volumes returns the collector of kubelet_volume_stats_*: the free and used space on the file systems of
// PersistentVolumeClaims. It measures a volume once for all its pods, and only when metrics are collected.
func (s *Source) Volumes() prometheus.Collector { return &volumes{source: s} }

type volumes struct {
	source *Source
	busy   atomic.Bool // a measurement is in progress
}

// scrapeTimeout limits the wait of a scrape for the file systems: a network file system may not respond.
const scrapeTimeout = time.Second

// driverTimeout limits the wait for the answers of CSI drivers to one scrape, or about one pod of a summary.
const driverTimeout = 10 * time.Second

// volumeStats are the metrics, with upstream's names.
var volumeStats = func() (out [6]*prometheus.Desc) {
	for i, m := range [][2]string{
		{"capacity_bytes", "Size of the volume's file system in bytes"},
		{"available_bytes", "Bytes that are free on the volume's file system"},
		{"used_bytes", "Bytes used on the volume's file system"}, {"inodes", "Number of inodes of the volume's file system"},
		{"inodes_free", "Number of free inodes of the volume's file system"},
		{"inodes_used", "Number of used inodes of the volume's file system"},
	} {
		out[i] = prometheus.NewDesc("kubelet_volume_stats_"+m[0], m[1], []string{"namespace", "persistentvolumeclaim"}, nil)
	}
	return out
}()

var volumeHealth = prometheus.NewDesc("kubelet_volume_stats_health_status_abnormal",
	"1 if the volume's driver reports that the volume is unhealthy, otherwise 0",
	[]string{"namespace", "persistentvolumeclaim"}, nil)

// Describe implements prometheus.Collector.
func (v *volumes) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range volumeStats {
		ch <- d
	}
	ch <- volumeHealth
}

// Collect implements prometheus.Collector. While an earlier call still waits for a file system, it returns no metrics.
func (v *volumes) Collect(ch chan<- prometheus.Metric) {
	dirs := map[types.NamespacedName]string{}
	for _, p := range v.source.cfg.Pods() {
		for _, c := range p.Claims {
			dirs[types.NamespacedName{Namespace: p.Namespace, Name: c.Name}] = c.Dir
		}
	}
	if len(dirs) == 0 || !v.busy.CompareAndSwap(false, true) {
		return
	}
	read, abnormal := map[types.NamespacedName]*statsapi.FsStats{}, map[types.NamespacedName]*bool{}
	done := guard.Spawn(func() error {
		defer v.busy.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), driverTimeout)
		defer cancel()
		for name, dir := range dirs {
			if sizes, sick := v.source.sizesOf(ctx, dir); sizes != nil {
				read[name], abnormal[name] = sizes, sick
			}
		}
		return nil
	})
	timer := v.source.cfg.Clock.NewTimer(scrapeTimeout)
	defer timer.Stop()
	select {
	case <-timer.C():
		return
	case err := <-done:
		if err != nil { // it panicked
			return
		}
	}
	for name, s := range read {
		for i, n := range []*uint64{s.CapacityBytes, s.AvailableBytes, s.UsedBytes, s.Inodes, s.InodesFree, s.InodesUsed} {
			ch <- prometheus.MustNewConstMetric(volumeStats[i], prometheus.GaugeValue, float64(*n), name.Namespace, name.Name)
		}
		if sick := abnormal[name]; sick != nil {
			value := 0.0
			if *sick {
				value = 1
			}
			ch <- prometheus.MustNewConstMetric(volumeHealth, prometheus.GaugeValue, value, name.Namespace, name.Name)
		}
	}
}

// sizesOf returns the values of volumeStats; nil if nobody knows them: dir is a block device, or does not exist, or its
// driver does not tell. abnormal is what a driver says about the volume's health; nil: nothing.
func (s *Source) sizesOf(ctx context.Context, dir string) (sizes *statsapi.FsStats, abnormal *bool) {
	at := metav1.NewTime(s.cfg.Clock.Now())
	if s.cfg.Driver != nil {
		if u, ok, err := s.cfg.Driver(ctx, dir); ok {
			if err != nil {
				return nil, nil
			}
			return fsStats(u.Bytes, u.Inodes, at), u.Abnormal
		}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, nil
	}
	return filesystem(dir, at), nil
}
