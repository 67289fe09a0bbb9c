package stats

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host"
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

// Describe implements prometheus.Collector.
func (v *volumes) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range volumeStats {
		ch <- d
	}
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
	read := map[types.NamespacedName][6]int64{}
	done := guard.Spawn(func() error {
		defer v.busy.Store(false)
		for name, dir := range dirs {
			if sizes, ok := sizesOf(dir); ok {
				read[name] = sizes
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
	for name, sizes := range read {
		for i, n := range sizes {
			ch <- prometheus.MustNewConstMetric(volumeStats[i], prometheus.GaugeValue, float64(n), name.Namespace, name.Name)
		}
	}
}

// sizesOf returns the values of volumeStats; false if dir is a block device, or does not exist.
func sizesOf(dir string) (out [6]int64, ok bool) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return out, false
	}
	disk, err := host.Disk(dir)
	if err != nil {
		return out, false
	}
	inodes, err := host.Inodes(dir)
	if err != nil {
		return out, false
	}
	return [6]int64{disk.Total, disk.Free, disk.Total - disk.Free, inodes.Total, inodes.Free, inodes.Total - inodes.Free},
		true
}
