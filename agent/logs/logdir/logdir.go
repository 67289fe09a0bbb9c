// Package logdir is where the logs of containers lie: in a folder for each pod, and
// beside them, flat, links as log shippers know them from kubelet's
// /var/log/containers.
package logdir

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

	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/apiserver/process/folder"
)

// Dir has the logs of all pods.
type Dir struct {
	log   *zap.Logger
	root  string
	links string
	made  sync.Map // path of a link that this process made → UID of its pod
}

// New lies in a folder that need not be there yet.
func New(path string, log *zap.Logger) *Dir {
	return &Dir{log: log, root: filepath.Join(path, "pods"), links: filepath.Join(path, "containers")}
}

// Root is the folder of all of them.
func (d *Dir) Root() string { return filepath.Dir(d.root) }

// Make makes the folders.
func (d *Dir) Make() error {
	for _, dir := range []string{d.root, d.links} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Pod is the folder of a pod's logs.
func (d *Dir) Pod(pod *corev1.Pod) string { return spec.LogDir(d.root, pod) }

// Path is the log of one instance of a container.
func (d *Dir) Path(pod *corev1.Pod, c *status.Container) string {
	return filepath.Join(d.Pod(pod), spec.LogPath(c.Name, c.Attempt))
}

// Link makes the link to a log; one that cannot be made is missed by nobody here.
func (d *Dir) Link(pod *corev1.Pod, c *status.Container) {
	link := d.link(pod, c)
	_ = os.Symlink(d.Path(pod, c), link)
	d.made.Store(link, pod.UID)
}

// Unlink removes the link to a log.
func (d *Dir) Unlink(pod *corev1.Pod, c *status.Container) {
	link := d.link(pod, c)
	_ = os.Remove(link)
	d.made.Delete(link)
}

// Remove removes a log, rotated parts too, and the link to it.
func (d *Dir) Remove(pod *corev1.Pod, c *status.Container) {
	all, _ := filepath.Glob(d.Path(pod, c) + "*") // bad patterns cannot be: names are DNS labels
	for _, file := range all {
		_ = os.Remove(file) // goes with the pod at the latest
	}
	d.Unlink(pod, c)
}

// maxName is the longest name a file may have.
const maxName = 255

func (d *Dir) link(pod *corev1.Pod, c *status.Container) string {
	suffix := fmt.Sprintf("_%s-%s.log", c.Name, c.ID)
	name := pod.Name + "_" + pod.Namespace
	return filepath.Join(d.links, name[:min(len(name), maxName-len(suffix))]+suffix)
}

// Sweep removes the folders of pods that are not there, and links to logs that are
// no more. It says how many.
func (d *Dir) Sweep(there func(types.UID) bool) (folders, links int) {
	for _, name := range folder.Names(d.root) {
		uid := types.UID(name[strings.LastIndex(name, "_")+1:])
		if there(uid) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.root, name)); err != nil {
			d.log.Warn("cannot remove the logs of a pod that no longer exists", zap.String("uid", string(uid)), zap.Error(err))
			continue
		}
		folders++
	}
	for _, name := range folder.Names(d.links) {
		if d.dangling(filepath.Join(d.links, name), there) {
			links++
		}
	}
	return folders, links
}

// dangling removes a link to what is no more.
func (d *Dir) dangling(path string, there func(types.UID) bool) (removed bool) {
	if uid, made := d.made.Load(path); made && there(uid.(types.UID)) {
		return false // following it would leave a trace on the disk
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) || os.Remove(path) != nil {
		return false
	}
	d.made.Delete(path)
	return true
}
