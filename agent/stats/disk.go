package stats

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/agent/host"
	"monopod/agent/podapi/spec"
	"monopod/agent/storage/csi"
)

// Size is the disk usage of a folder on its file system.
type Size struct{ Bytes, Inodes uint64 }

func (s *Size) add(o Size) {
	s.Bytes += o.Bytes
	s.Inodes += o.Inodes
}

// SizeOf walks a folder without leaving its file system. A file with several links counts once. Files that are removed
// meanwhile do not count.
func SizeOf(ctx context.Context, dir string) (Size, error) {
	var size Size
	var device uint64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return nil // removed meanwhile
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if path == dir {
			device = st.Dev
		}
		if st.Dev != device {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if st.Nlink > 1 && !e.IsDir() {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		size.add(Size{uint64(st.Blocks) * blockSize, 1})
		return nil
	})
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return size, err
}

// blockSize is the unit of st_blocks.
const blockSize = 512

// filesystem returns the file system that contains dir.
func filesystem(dir string, now metav1.Time) *statsapi.FsStats {
	disk, err1 := host.Disk(dir)
	inodes, err2 := host.Inodes(dir)
	if errors.Join(err1, err2) != nil {
		return nil
	}
	return fsStats(csi.Amounts{Total: disk.Total, Free: disk.Free, Used: disk.Total - disk.Free},
		csi.Amounts{Total: inodes.Total, Free: inodes.Free, Used: inodes.Total - inodes.Free}, now)
}

func fsStats(bytes, inodes csi.Amounts, now metav1.Time) *statsapi.FsStats {
	return &statsapi.FsStats{
		Time:          now,
		CapacityBytes: positive(bytes.Total), AvailableBytes: positive(bytes.Free), UsedBytes: positive(bytes.Used),
		Inodes: positive(inodes.Total), InodesFree: positive(inodes.Free), InodesUsed: positive(inodes.Used),
	}
}

func positive(n int64) *uint64 { return new(uint64(max(n, 0))) }

// within returns the statistics of fs, with used as the usage.
func within(fs *statsapi.FsStats, used Size) *statsapi.FsStats {
	out := statsapi.FsStats{}
	if fs != nil {
		out = *fs
	}
	out.UsedBytes, out.InodesUsed = new(used.Bytes), new(used.Inodes)
	return &out
}

// disk is a pod's usage of the node's disk: the writable layers and logs of its containers, and its volumes.
type disk struct {
	rootfs  map[string]Size // by container name
	logs    map[string]Size // by container name
	volumes map[string]Size // volumes on the node's disk, by name
}

func (d *disk) sum() Size {
	var all Size
	for _, part := range []map[string]Size{d.rootfs, d.logs, d.volumes} {
		for _, size := range part {
			all.add(size)
		}
	}
	return all
}

// diskOf walks the pod's folders.
func (s *Source) diskOf(ctx context.Context, r *reading, p Pod) (disk, error) {
	d := disk{rootfs: map[string]Size{}, logs: map[string]Size{}, volumes: map[string]Size{}}
	var errs []error
	for _, c := range r.containers[p.UID] {
		layer := c.stats.GetWritableLayer()
		d.rootfs[c.name] = Size{layer.GetUsedBytes().GetValue(), layer.GetInodesUsed().GetValue()}
	}
	for _, c := range spec.Containers(&p.Spec) {
		size, err := SizeOf(ctx, filepath.Join(p.LogDir, c.Name))
		d.logs[c.Name], errs = size, append(errs, err)
	}
	for name, dir := range p.volumes() {
		size, err := SizeOf(ctx, dir)
		d.volumes[name], errs = size, append(errs, err)
	}
	return d, errors.Join(errs...)
}

// Disk is a running pod's usage of the node's disk, in bytes.
type Disk struct {
	Volumes    map[string]int64 // volumes on the node's disk, by name
	Containers map[string]int64 // writable layer and logs, by name
}

// Disks returns the disk usage of the running pods for which want returns true. It walks their folders.
func (s *Source) Disks(ctx context.Context, want func(*corev1.Pod) bool) (map[types.UID]Disk, error) {
	r, err := s.read(ctx)
	if errors.Is(err, ErrNoStatistics) { // volumes and logs are known without the runtime
		r, err = &reading{pods: s.cfg.Pods()}, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[types.UID]Disk{}
	for _, p := range r.pods {
		if !want(p.Pod) {
			continue
		}
		d, err := s.diskOf(ctx, r, p)
		if err != nil {
			return nil, err
		}
		out[p.UID] = Disk{bytesOf(d.volumes), bytesOf(d.rootfs, d.logs)}
	}
	return out, nil
}

func bytesOf(parts ...map[string]Size) map[string]int64 {
	out := map[string]int64{}
	for _, part := range parts {
		for name, size := range part {
			out[name] += int64(size.Bytes)
		}
	}
	return out
}
