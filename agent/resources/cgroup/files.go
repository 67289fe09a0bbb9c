package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// controllers returns the controllers that this package uses.
func controllers() []string { return []string{"cpu", "memory", "pids", "hugetlb"} }

// set creates a cgroup with its limits, or sets them on an existing one.
func (m *Manager) set(name []string, l Limits) error {
	var errs []error
	if m.Units != nil {
		errs = append(errs, m.Units.Start(slice(name), m.properties(name, l)))
	}
	return errors.Join(append(errs, m.write(m.dir(name), l))...)
}

// write sets the limits of the cgroup dir in every hierarchy with a controller for
// them.
func (m *Manager) write(dir string, l Limits) error {
	var errs []error
	var lacking []string
	for _, c := range controllers() {
		root, v2, ok := m.find(c)
		if !ok {
			if l.needs(c) {
				lacking = append(lacking, c)
			}
			continue
		}
		if values := l.values(c, v2); len(values) > 0 {
			errs = append(errs, fill(root, dir, c, v2, values))
		}
	}
	if len(lacking) > 0 {
		errs = append(errs, fmt.Errorf("the kernel has no cgroup controller %s here", strings.Join(lacking, ", ")))
	}
	return errors.Join(errs...)
}

// find returns the hierarchy of a controller: the common one on v2, its own on v1, either on hybrid systems.
func (m *Manager) find(controller string) (root string, v2, ok bool) {
	if m.v2 {
		return m.Mount, true, has(m.Mount, "cgroup.controllers", controller)
	}
	root = filepath.Join(m.Mount, controller)
	if _, err := os.Stat(root); err == nil {
		return root, false, true
	}
	root = filepath.Join(m.Mount, "unified")
	return root, true, has(root, "cgroup.controllers", controller)
}

// has reports whether a file of a cgroup lists the controller.
func has(dir, file, controller string) bool {
	text, err := os.ReadFile(filepath.Join(dir, file))
	return err == nil && slices.Contains(strings.Fields(string(text)), controller)
}

// fill creates the cgroup in one hierarchy and writes its files.
func fill(root, dir, controller string, v2 bool, values []value) error {
	path := filepath.Join(root, dir)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if v2 && !has(path, "cgroup.controllers", controller) {
		if err := delegate(root, dir, controller); err != nil {
			return err
		}
	}
	for _, v := range values {
		err := write(filepath.Join(path, v.file), v.value)
		if v2 && absent(err) {
			// Another pod's start is enabling the controller, which is in cgroup.controllers before its files
			// exist. Enabling it waits until they do.
			if err = delegate(root, dir, controller); err == nil {
				err = write(filepath.Join(path, v.file), v.value)
			}
		}
		if err != nil && (!v.optional || !absent(err)) {
			return err
		}
	}
	return nil
}

// absent reports whether a write failed because the kernel does not have the file: the folder of a cgroup contains only
// the kernel's files.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// delegate enables a controller in every folder from the root down to dir's parent, as v2 requires.
func delegate(root, dir, controller string) error {
	at := root
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if err := write(filepath.Join(at, "cgroup.subtree_control"), "+"+controller); err != nil {
			return err
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

// hierarchies returns the mounted hierarchies. Runtimes create a cgroup in each of them.
func (m *Manager) hierarchies() []string {
	if m.v2 {
		return []string{m.Mount}
	}
	var out []string
	for _, name := range folders(m.Mount) {
		out = append(out, filepath.Join(m.Mount, name))
	}
	return out
}

// folders returns the names of the folders in dir.
func folders(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// remove removes a cgroup in every hierarchy. There must be no process in it: systemd would kill it.
func (m *Manager) remove(name []string) error {
	var errs []error
	for _, h := range m.hierarchies() {
		errs = append(errs, removeTree(filepath.Join(h, m.dir(name))))
	}
	if err := errors.Join(errs...); err != nil || m.Units == nil {
		return err
	}
	return m.Units.Stop(slice(name))
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
