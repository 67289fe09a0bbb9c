package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// Dir is the folder of all logs.
type Dir struct {
	log   *zap.Logger
	root  string
	links string
	made  sync.Map // path of a symlink that this process created → UID of its pod
}

// New returns the Dir at path, which need not exist yet.
func New(path string, log *zap.Logger) *Dir {
	return &Dir{log: log, root: filepath.Join(path, "pods"), links: filepath.Join(path, "containers")}
}

// Root returns the folder that contains the folders of logs and of symlinks.
func (d *Dir) Root() string { return filepath.Dir(d.root) }

// Make creates the folders.
func (d *Dir) Make() error {
	for _, dir := range []string{d.root, d.links} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Pod returns the folder of a pod's logs.
func (d *Dir) Pod(pod *corev1.Pod) string { return spec.LogDir(d.root, pod) }

// Path returns the log file of a container instance.
func (d *Dir) Path(pod *corev1.Pod, c *status.Container) string {
	return filepath.Join(d.Pod(pod), spec.LogPath(c.Name, c.Attempt))
}

// Link creates the symlink to a log. It ignores errors, because Monopod does not need the symlink.
func (d *Dir) Link(pod *corev1.Pod, c *status.Container) {
	link := d.link(pod, c)
	_ = os.Symlink(d.Path(pod, c), link)
	d.made.Store(link, pod.UID)
}

// Unlink removes the symlink to a log.
func (d *Dir) Unlink(pod *corev1.Pod, c *status.Container) {
	link := d.link(pod, c)
	_ = os.Remove(link)
	d.made.Delete(link)
}

// Remove removes a log with its rotated files and its symlink.
func (d *Dir) Remove(pod *corev1.Pod, c *status.Container) {
	all, _ := filepath.Glob(d.Path(pod, c) + "*") // no bad patterns: names are DNS labels
	for _, file := range all {
		_ = os.Remove(file) // removed with the pod at the latest
	}
	d.Unlink(pod, c)
}

// maxName is the maximum length of a file name.
const maxName = 255

func (d *Dir) link(pod *corev1.Pod, c *status.Container) string {
	suffix := fmt.Sprintf("_%s-%s.log", c.Name, c.ID)
	name := pod.Name + "_" + pod.Namespace
	return filepath.Join(d.links, name[:min(len(name), maxName-len(suffix))]+suffix)
}

// Sweep removes the folders of pods that do not exist, and dangling symlinks. It returns their numbers.
func (d *Dir) Sweep(there func(types.UID) bool) (folders, links int) {
	for _, name := range host.Names(d.root) {
		uid := types.UID(name[strings.LastIndex(name, "_")+1:])
		if there(uid) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.root, name)); err != nil {
			d.log.Warn("failed to remove the logs of a deleted pod", zap.String("uid", string(uid)), zap.Error(err))
			continue
		}
		folders++
	}
	for _, name := range host.Names(d.links) {
		path := filepath.Join(d.links, name)
		if uid, made := d.made.Load(path); made && there(uid.(types.UID)) {
			continue // following the symlink would update its access time on the disk
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && os.Remove(path) == nil {
			d.made.Delete(path)
			links++
		}
	}
	return folders, links
}
