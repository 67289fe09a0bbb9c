package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/garbage"
	"monopod/agent/host"
	"monopod/agent/spec"
	"monopod/agent/status"
)

// collector removes what nobody needs any more: dead containers and sandboxes,
// logs and images. What belongs to a pod that is deleted goes with it, by its
// worker; this is about the rest.
type collector struct {
	a      *Agent
	policy garbage.Policy
	images garbage.Images
	failed bool // the last pass over images did not free enough

	imagesGone *prometheus.CounterVec // by reason
	gone       *prometheus.CounterVec // by what
}

// Reasons of the node's events.
const (
	reasonImageGC = "ImageGCFailed"
	reasonFree    = "FreeDiskSpaceFailed"
	reasonDisk    = "InvalidDiskCapacity"
)

func newCollector(a *Agent) (*collector, error) {
	c := &collector{a: a, policy: a.cfg.Garbage,
		imagesGone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total", Help: "Images removed, by reason: age or space.",
		}, []string{"reason"}),
		gone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monopod_garbage_collected_total", Help: "What was removed of pods: container, sandbox, log_folder, log_link.",
		}, []string{"what"}),
	}
	return c, errors.Join(a.Metrics.Register(c.imagesGone), a.Metrics.Register(c.gone))
}

// run looks at containers and images, each in its own time, until ctx ends.
func (c *collector) run(ctx context.Context) {
	containers := c.a.Clock.NewTicker(c.policy.ContainerPeriod)
	defer containers.Stop()
	images := c.a.Clock.NewTicker(c.policy.ImagePeriod)
	defer images.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-containers.C():
			if err := c.containers(ctx, false); err != nil && ctx.Err() == nil {
				c.a.log.Warn("dead containers not removed", zap.Error(err))
			}
		case <-images.C():
			if !c.policy.ImagesOff() {
				c.imagePass(ctx)
			}
		}
	}
}

// DeleteAllUnusedContainers removes, at once, every dead container that no policy
// keeps, and all of the pods that have ended, whose logs go with them. It is for
// when the disk is full.
func (a *Agent) DeleteAllUnusedContainers(ctx context.Context) error {
	return a.collect.containers(ctx, true)
}

// DeleteUnusedImages removes, at once, every image that no container was made
// from, but for those pinned, preloaded or just pulled. It is for when the disk is
// full.
func (a *Agent) DeleteUnusedImages(ctx context.Context) error {
	unused, err := a.collect.unused(ctx)
	if err != nil {
		return err
	}
	_, err = a.collect.free(ctx, unused, "space", allOfIt)
	return err
}

// reclaim removes what nobody needs.
func (a *Agent) reclaim(ctx context.Context) {
	if err := a.DeleteAllUnusedContainers(ctx); err != nil {
		a.log.Warn("dead containers not removed for space", zap.Error(err))
	}
	if err := a.DeleteUnusedImages(ctx); err != nil {
		a.log.Warn("unused images not removed for space", zap.Error(err))
	}
}

// allOfIt is more than there is to free.
const allOfIt = int64(1)<<62 - 1

// containers does one pass over containers, sandboxes and logs. The pods of the
// API must be known, else everything would seem to be nobody's.
func (c *collector) containers(ctx context.Context, emptyEnded bool) error {
	if !c.a.knowsPods() {
		return nil
	}
	workers := c.a.all()
	var errs []error
	for _, dead := range c.policy.Containers(pods(workers, emptyEnded), c.a.Clock.Now()) {
		errs = append(errs, c.removeContainer(ctx, workers[dead.Pod], dead.Container))
	}
	for _, pod := range pods(workers, emptyEnded) {
		for _, id := range garbage.Sandboxes(pod) {
			errs = append(errs, c.removeSandbox(ctx, workers[pod.UID], id))
		}
	}
	c.a.sweepPods()
	c.count("log_folder", c.a.sweepLogs())
	c.count("log_link", c.a.sweepLinks())
	return errors.Join(errs...)
}

// pods are those of the workers, without those that are being stopped: their
// workers remove all of it.
func pods(workers map[types.UID]*worker, emptyEnded bool) []garbage.Pod {
	var out []garbage.Pod
	for uid, w := range workers {
		pod := w.current.Load()
		if seen := w.snapshot.Load(); seen != nil && pod.DeletionTimestamp == nil {
			over := w.over.Load()
			out = append(out, garbage.Pod{UID: uid, Seen: seen, Over: over, All: over && emptyEnded})
		}
	}
	return out
}

func (c *collector) count(what string, n int) {
	if n > 0 {
		c.gone.WithLabelValues(what).Add(float64(n))
	}
}

func (c *collector) removeContainer(ctx context.Context, w *worker, dead *status.Container) error {
	if err := c.a.Runtime.RemoveContainer(ctx, dead.ID); err != nil {
		return fmt.Errorf("remove dead container: %w", err)
	}
	c.count("container", 1)
	c.a.removeLogs(w.current.Load(), dead)
	_ = os.Remove(w.messagePath(dead.Name, dead.Attempt)) // goes with the pod at the latest
	w.collected(dead.ID)
	return nil
}

func (c *collector) removeSandbox(ctx context.Context, w *worker, id string) error {
	if err := c.a.Runtime.RemovePodSandbox(ctx, id); err != nil {
		return fmt.Errorf("remove dead sandbox: %w", err)
	}
	c.count("sandbox", 1)
	w.collected(id)
	return nil
}

// collected tells the worker that a container or sandbox is no more, and everyone
// else too.
func (w *worker) collected(id string) {
	for {
		old := w.snapshot.Load()
		next := old.Clone()
		next.Forget(id)
		if w.snapshot.CompareAndSwap(old, &next) {
			break
		}
	}
	w.update(func(in *inbox) { in.collected = append(in.collected, id) })
}

// imagePass removes images that are too old and, when the disk is full, others.
func (c *collector) imagePass(ctx context.Context) {
	err := c.freeEnough(ctx)
	if err == nil || ctx.Err() != nil {
		c.failed = false
		return
	}
	c.a.log.Warn("images not removed", zap.Error(err))
	if c.failed { // as upstream: only what lasts is told
		c.a.node.Event(corev1.EventTypeWarning, reasonImageGC, "%v", err)
	}
	c.failed = true
}

func (c *collector) freeEnough(ctx context.Context) error {
	unused, err := c.unused(ctx)
	if err != nil {
		return err
	}
	old := c.policy.TooOld(unused, c.images.Began(), c.a.Clock.Now())
	if _, err := c.free(ctx, old, "age", allOfIt); err != nil {
		return err
	}
	disk, err := c.disk(ctx)
	if err != nil {
		return err
	}
	want := c.policy.ToFree(disk.Total, disk.Free)
	if want == 0 {
		return nil
	}
	unused = slices.DeleteFunc(unused, func(i garbage.Image) bool {
		return slices.ContainsFunc(old, func(o garbage.Image) bool { return o.ID == i.ID })
	})
	freed, err := c.free(ctx, unused, "space", want)
	if err == nil && freed < want {
		err = fmt.Errorf("Failed to garbage collect required amount of images. Attempted to free %d bytes, but only found %d bytes eligible to free.", want, freed) //nolint:staticcheck,revive // upstream's text, shown as it is
		c.a.node.Event(corev1.EventTypeWarning, reasonFree, "%v", err)
	}
	return err
}

// disk is the file system that images lie on, as far as the runtime says where.
func (c *collector) disk(ctx context.Context) (host.Amount, error) {
	root := c.a.cfg.ImageRoot
	if info, err := c.a.Runtime.ImageFsInfo(ctx); err == nil && len(info.ImageFilesystems) > 0 {
		root = cmp.Or(info.ImageFilesystems[0].GetFsId().GetMountpoint(), root)
	}
	disk, err := host.Disk(root)
	if err == nil && disk.Total <= 0 {
		err = errors.New("invalid capacity 0 on image filesystem")
		c.a.node.Event(corev1.EventTypeWarning, reasonDisk, "%v", err)
	}
	return disk, err
}

// unused are the images that may go, in order.
func (c *collector) unused(ctx context.Context) ([]garbage.Image, error) {
	images, err := c.a.Runtime.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	containers, err := c.a.Runtime.ListContainers(ctx, nil) // also those of others
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	now := c.a.Clock.Now()
	return c.policy.Unused(c.images.Detect(images, usedBy(containers), c.a.preload.Names(), now), now), nil
}

func usedBy(containers []*cri.Container) map[string]bool {
	used := map[string]bool{}
	for _, c := range containers {
		used[c.GetImage().GetImage()], used[c.ImageRef], used[c.ImageId] = true, true, true
	}
	delete(used, "")
	return used
}

// free removes images until enough is free.
func (c *collector) free(ctx context.Context, list []garbage.Image, reason string, enough int64) (freed int64, err error) {
	for _, img := range list {
		if freed >= enough {
			break
		}
		if err := c.a.Runtime.RemoveImage(ctx, img.ID); err != nil {
			return freed, fmt.Errorf("remove image %s: %w", img.ID, err)
		}
		freed += img.Size
		c.imagesGone.WithLabelValues(reason).Inc()
		c.a.log.Info("image removed", zap.String("image", img.ID), zap.Strings("names", img.Names), zap.Int64("bytes", img.Size), zap.String("reason", reason))
		defer c.a.node.ImagesChanged()
	}
	return freed, nil
}

// removeLogs removes a container's log, rotated ones too.
func (a *Agent) removeLogs(pod *corev1.Pod, c *status.Container) {
	path := filepath.Join(spec.LogDir(a.logsDir(), pod), spec.LogPath(c.Name, c.Attempt))
	all, _ := filepath.Glob(path + "*") // bad patterns cannot be: names are DNS labels
	for _, file := range all {
		_ = os.Remove(file) // goes with the pod at the latest
	}
	link := a.logLink(pod, c.Name, c.ID)
	_ = os.Remove(link)
	a.links.Delete(link)
}

// sweepLogs removes the log folders of pods that no worker has.
func (a *Agent) sweepLogs() (removed int) {
	for _, name := range entries(a.logsDir()) {
		uid := name[strings.LastIndex(name, "_")+1:]
		if a.worker(types.UID(uid)) != nil {
			continue
		}
		if err := os.RemoveAll(filepath.Join(a.logsDir(), name)); err != nil {
			a.log.Warn("cannot remove the logs of a pod that no longer exists", zap.String("uid", uid), zap.Error(err))
			continue
		}
		removed++
	}
	return removed
}

// sweepLinks removes links to logs that are no more.
func (a *Agent) sweepLinks() (removed int) {
	for _, name := range entries(a.linksDir()) {
		path := filepath.Join(a.linksDir(), name)
		if uid, made := a.links.Load(path); made && a.worker(uid.(types.UID)) != nil {
			continue // following it would leave a trace on the disk
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && os.Remove(path) == nil {
			a.links.Delete(path)
			removed++
		}
	}
	return removed
}

// linksDir holds a link to each container's log, flat, as log shippers know it
// from kubelet's /var/log/containers.
func (a *Agent) linksDir() string { return filepath.Join(a.cfg.DataDir, "logs", "containers") }

// maxLinkName is the longest name a file may have.
const maxLinkName = 255

func (a *Agent) logLink(pod *corev1.Pod, container, id string) string {
	suffix := fmt.Sprintf("_%s-%s.log", container, id)
	name := pod.Name + "_" + pod.Namespace
	return filepath.Join(a.linksDir(), name[:min(len(name), maxLinkName-len(suffix))]+suffix)
}

// linkLog makes the link to the log of an instance; one that cannot be made is
// missed by nobody here.
func (w *worker) linkLog(container, id string) {
	if c := w.seen.ByID(id); c != nil {
		link := w.a.logLink(w.pod, container, id)
		_ = os.Symlink(w.logPath(c), link)
		w.a.links.Store(link, w.pod.UID)
	}
}

// unlinkLogs removes the links of a pod that goes.
func (w *worker) unlinkLogs() {
	for i := range w.seen.Containers {
		c := &w.seen.Containers[i]
		link := w.a.logLink(w.pod, c.Name, c.ID)
		_ = os.Remove(link)
		w.a.links.Delete(link)
	}
}
