// Package cgroup creates, limits and removes the cgroups of pods, on v1, v2 and
// hybrid systems, with the cgroupfs or the systemd driver: one for all pods, below it
// one for each QoS class, and below that one for each pod. The runtime creates the
// containers' cgroups in that of the pod; it neither sets pod limits nor removes the
// pod's cgroup.
//
//   - enforce.go: enforces node allocatable, and the limits of pods
//   - slices.go: manages slices through systemd's D-Bus interface
package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/podapi/status"
)

// Config of a Manager. Mount and Root are required.
type Config struct {
	Mount string // /sys/fs/cgroup
	Root  string // the parent of all cgroups of the node, such as /monopod
	// MaxPIDs is the maximum number of processes of a pod; 0 or less: no limit.
	MaxPIDs int64
	// HugePages are the sizes of the machine's huge pages, in bytes.
	HugePages []int64
	// Protect makes the kernel keep the memory that pods request; v1 cannot.
	Protect bool
	// Units selects the systemd driver, in which every cgroup is a slice; nil:
	// cgroupfs.
	Units Units
}

// Manager manages the cgroups below one root. It is safe for concurrent use.
type Manager struct {
	Config
	v2 bool // all controllers are in v2: the system is not hybrid

	mu   sync.Mutex // guards the fields below
	held map[types.UID]requests

	// sumsMu guards sums. It is held while they are written, so that the last write has the last sums.
	sumsMu sync.Mutex
	sums   sums // as written; zero: not written yet
}

// requests are those of a pod that is not BestEffort.
type requests struct {
	class         corev1.PodQOSClass
	milli, memory int64 // CPU in millicores, bytes
}

// sums are what the cgroups above the pods get from the requests of all pods.
type sums struct {
	shares int64 // of the Burstable class
	memory Protection
}

// New detects the mounted hierarchies.
func New(config Config) *Manager {
	config.Root = filepath.Clean("/" + config.Root)
	_, err := os.Stat(filepath.Join(config.Mount, "cgroup.controllers"))
	config.Protect = config.Protect && err == nil
	return &Manager{Config: config, v2: err == nil, held: map[types.UID]requests{}}
}

// Parent returns the pod's cgroup for the runtime: below <root>/kubepods, directly
// for Guaranteed pods, otherwise in the folder of their QoS class.
func (m *Manager) Parent(pod *corev1.Pod) string {
	return m.dir(m.name(status.QOS(pod), "pod"+string(pod.UID)))
}

// name returns the parts of a cgroup's path: the QoS class (none for Guaranteed), and
// more below it.
func (m *Manager) name(class corev1.PodQOSClass, more ...string) []string {
	name := []string{"kubepods"}
	if m.Root != "/" {
		name = append(strings.Split(m.Root[1:], "/"), name...)
	}
	if class != corev1.PodQOSGuaranteed {
		name = append(name, strings.ToLower(string(class)))
	}
	return append(name, more...)
}

// dir returns a cgroup's folder, relative to the mount or the hierarchy.
func (m *Manager) dir(name []string) string {
	if m.Units != nil {
		return expand(slice(name))
	}
	return "/" + filepath.Join(name...)
}

// Create creates the pod's cgroup and sets its limits. If a controller is missing,
// the others are still set.
func (m *Manager) Create(pod *corev1.Pod) error {
	name := m.name(status.QOS(pod), "pod"+string(pod.UID))
	return errors.Join(m.set(name, m.podLimits(pod)), m.Adopt(pod))
}

// Remove removes the pod's cgroup and empty cgroups below it, in every hierarchy. It fails with EBUSY if the cgroup
// still has a process.
func (m *Manager) Remove(pod *corev1.Pod) error {
	classes := []corev1.PodQOSClass{status.QOS(pod)}
	if len(pod.Spec.Containers) == 0 { // only the UID is known, so the class is not
		classes = []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}
	}
	errs := []error{m.release(pod.UID)}
	for _, class := range classes {
		errs = append(errs, m.remove(m.name(class, "pod"+string(pod.UID))))
	}
	return errors.Join(errs...)
}

// Pods returns the UIDs of the pods that have cgroups.
func (m *Manager) Pods() []types.UID {
	seen := map[types.UID]bool{}
	var out []types.UID
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		for _, h := range m.hierarchies() {
			for _, name := range folders(filepath.Join(h, m.dir(m.name(class)))) {
				uid, ok := m.uid(name)
				if ok && !seen[uid] {
					seen[uid], out = true, append(out, uid)
				}
			}
		}
	}
	return out
}

// uid returns the UID in the name of a pod's folder.
func (m *Manager) uid(folder string) (types.UID, bool) {
	if m.Units != nil {
		folder = strings.TrimSuffix(folder[strings.LastIndexByte(folder, '-')+1:], ".slice")
		folder = strings.ReplaceAll(folder, "_", "-")
	}
	uid, ok := strings.CutPrefix(folder, "pod")
	return types.UID(uid), ok && uid != ""
}

// Close removes the cgroups of the QoS classes, of all pods and of the root, unless they are in use.
func (m *Manager) Close() {
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed} {
		m.removeUnused(m.name(class))
	}
	for name := m.name(corev1.PodQOSGuaranteed); len(name) > 1; {
		name = name[:len(name)-1]
		m.removeUnused(name)
	}
}

// removeUnused removes a cgroup without children.
func (m *Manager) removeUnused(name []string) {
	for _, h := range m.hierarchies() {
		if len(folders(filepath.Join(h, m.dir(name)))) > 0 {
			return
		}
	}
	_ = m.remove(name) // a process may be in it
}

// Discard removes all cgroups below the root, of both drivers. There must be no processes in them.
func Discard(mount, root string) error {
	var errs []error
	for _, units := range []Units{nil, noUnits{}} {
		m := New(Config{Mount: mount, Root: root, Units: units})
		name := m.name(corev1.PodQOSGuaranteed)
		for _, h := range m.hierarchies() {
			errs = append(errs, removeTree(filepath.Join(h, m.dir(name[:max(1, len(name)-1)]))))
		}
	}
	return errors.Join(errs...)
}
