// Package cgroup makes, limits and removes the cgroups of pods with the cgroupfs
// driver, on v1 and v2. The runtime makes containers' cgroups below them, sets no
// pod limits and never removes what it made for the pod: that is done here.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"monopod/agent/spec"
	"monopod/agent/status"
)

// Manager keeps the cgroups below one root.
type Manager struct {
	mount string // /sys/fs/cgroup
	root  string // ours, such as /monopod
	v2    bool
}

// New finds out what the machine has mounted at mount.
func New(mount, root string) *Manager {
	_, err := os.Stat(filepath.Join(mount, "cgroup.controllers"))
	return &Manager{mount: mount, root: filepath.Clean("/" + root), v2: err == nil}
}

// Parent is the pod's cgroup as the runtime is told: below <root>/kubepods,
// guaranteed pods directly, others in the folder of their class.
func (m *Manager) Parent(pod *corev1.Pod) string {
	return filepath.Join(m.class(status.QOS(pod)), "pod"+string(pod.UID))
}

func (m *Manager) class(qos corev1.PodQOSClass) string {
	base := filepath.Join(m.root, "kubepods")
	if qos == corev1.PodQOSGuaranteed {
		return base
	}
	return filepath.Join(base, strings.ToLower(string(qos)))
}

// hierarchies are the v1 controllers whose pod folder is limited.
func hierarchies() []string { return []string{"cpu", "memory", "pids"} }

// Create makes the pod's cgroup and sets its limits: the sums over its
// containers. Where one controller is missing the others are still set.
func (m *Manager) Create(pod *corev1.Pod) error {
	var errs []error
	for _, set := range m.settings(pod) {
		dir := filepath.Join(m.mount, set.controller, m.Parent(pod))
		err := os.MkdirAll(dir, 0o755)
		if err == nil && m.v2 {
			err = m.delegate(dir)
		}
		for i := 0; err == nil && i < len(set.values); i++ {
			err = write(filepath.Join(dir, set.values[i].file), set.values[i].value)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// delegate switches the controllers on in every folder from the mount down to
// dir's parent (v2).
func (m *Manager) delegate(dir string) error {
	rel, err := filepath.Rel(m.mount, filepath.Dir(dir))
	if err != nil {
		return err
	}
	at := m.mount
	for part := range strings.SplitSeq(rel, "/") {
		for _, c := range hierarchies() {
			if err := write(filepath.Join(at, "cgroup.subtree_control"), "+"+c); err != nil {
				return err
			}
		}
		at = filepath.Join(at, part)
	}
	return nil
}

func write(path, value string) error {
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s to %s: %w", path, value, err)
	}
	return nil
}

type setting struct {
	controller string // empty on v2: one folder for all
	values     []value
}

type value struct{ file, value string }

// settings are what the pod's cgroup must say.
func (m *Manager) settings(pod *corev1.Pod) []setting {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	limits := podLimits(pod)
	if m.v2 {
		return []setting{{"", v2Values(requests, limits)}}
	}
	cpu := []value{{"cpu.shares", itoa(spec.Shares(requests.Cpu().MilliValue()))}}
	if milli := limits.Cpu().MilliValue(); milli > 0 {
		cpu = append(cpu, value{"cpu.cfs_period_us", "100000"}, value{"cpu.cfs_quota_us", itoa(spec.Quota(milli))})
	}
	var memory []value
	if bytes := limits.Memory().Value(); bytes > 0 {
		memory = []value{{"memory.limit_in_bytes", itoa(bytes)}}
	}
	return []setting{{"cpu", cpu}, {"memory", memory}}
}

// podLimits are the limits of a pod whose every container has one; a resource
// that some container may use freely has none.
func podLimits(pod *corev1.Pod) corev1.ResourceList {
	limits := resource.PodLimits(pod, resource.PodResourcesOptions{})
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q := list[i].Resources.Limits[name]; q.IsZero() {
					delete(limits, name)
				}
			}
		}
	}
	return limits
}

func v2Values(requests, limits corev1.ResourceList) []value {
	out := []value{{"cpu.weight", itoa(weight(spec.Shares(requests.Cpu().MilliValue())))}}
	if milli := limits.Cpu().MilliValue(); milli > 0 {
		out = append(out, value{"cpu.max", itoa(spec.Quota(milli)) + " 100000"})
	}
	if bytes := limits.Memory().Value(); bytes > 0 {
		out = append(out, value{"memory.max", itoa(bytes)})
	}
	return out
}

// weight maps cpu.shares 2…262144 to cpu.weight 1…10000, as runtimes do.
func weight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Remove takes the pod's cgroup away in every hierarchy, with whatever empty
// folders are left below. EBUSY means a process still lives there.
func (m *Manager) Remove(pod *corev1.Pod) error {
	var errs []error
	for _, h := range m.roots() {
		for _, parent := range m.candidates(pod) {
			errs = append(errs, removeTree(filepath.Join(h, parent)))
		}
	}
	return errors.Join(errs...)
}

// candidates are all places the pod's cgroup may be: of a pod known only by its
// uid the class is not known.
func (m *Manager) candidates(pod *corev1.Pod) []string {
	if len(pod.Spec.Containers) > 0 {
		return []string{m.Parent(pod)}
	}
	var out []string
	for _, qos := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		out = append(out, filepath.Join(m.class(qos), "pod"+string(pod.UID)))
	}
	return out
}

// roots are the hierarchies mounted; runtimes make the path in each of them.
func (m *Manager) roots() []string {
	if m.v2 {
		return []string{m.mount}
	}
	entries, err := os.ReadDir(m.mount)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(m.mount, e.Name()))
		}
	}
	return out
}

// removeTree removes cgroup folders depth first; their files go with them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close removes the empty folders of the classes and the root; those still in
// use stay.
func (m *Manager) Close() {
	for _, h := range m.roots() {
		for _, qos := range []corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed} {
			_ = os.Remove(filepath.Join(h, m.class(qos)))
		}
		if m.root != "/" {
			_ = os.Remove(filepath.Join(h, m.root))
		}
	}
}
