// Package cdi resolves the names of CDI devices for runtimes that cannot: containerd before 2.0. It reads the
// specifications that vendors and DRA drivers write (Container Device Interface 0.3 to 1.0) and adds those edits to a
// container's config that CRI can express: environment variables, device nodes and bind mounts. Any other edit is an
// error.
package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"monopod/agent/podapi/env"
	"monopod/agent/podapi/spec"
)

// Dirs returns the folders of specifications. Later ones take precedence.
func Dirs(dataDir string) []string {
	return []string{"/etc/cdi", "/var/run/cdi", filepath.Join(dataDir, "cdi")}
}

// file is a CDI specification.
type file struct {
	Kind    string `json:"kind"` // vendor/class
	Devices []struct {
		Name  string `json:"name"`
		Edits edits  `json:"containerEdits"`
	} `json:"devices"`
	Edits edits `json:"containerEdits"`
}

// edits are the containerEdits of a specification or a device.
type edits struct {
	Env         []string `json:"env"`
	DeviceNodes []struct {
		Path        string `json:"path"`
		HostPath    string `json:"hostPath"`
		Permissions string `json:"permissions"`
	} `json:"deviceNodes"`
	Mounts []struct {
		HostPath      string   `json:"hostPath"`
		ContainerPath string   `json:"containerPath"`
		Options       []string `json:"options"`
		Type          string   `json:"type"`
	} `json:"mounts"`
	Hooks          []any    `json:"hooks"`
	NetDevices     []any    `json:"netDevices"`
	AdditionalGIDs []uint32 `json:"additionalGids"`
	IntelRdt       any      `json:"intelRdt"`
}

// Expand replaces the CDI devices of an allotment by their edits. It reads the specifications each time, because
// drivers write them just before.
func Expand(dirs []string, a *spec.Allotment) error {
	if len(a.CDI) == 0 {
		return nil
	}
	all, err := read(dirs)
	if err != nil {
		return err
	}
	applied := map[*file]bool{}
	for _, d := range a.CDI {
		file, device, err := find(all, d.Name)
		if err != nil {
			return err
		}
		if err := device.apply(a); err != nil {
			return fmt.Errorf("CDI device %q: %w", d.Name, err)
		}
		if !applied[file] {
			applied[file] = true
			if err := file.Edits.apply(a); err != nil {
				return fmt.Errorf("CDI device %q: %w", d.Name, err)
			}
		}
	}
	a.CDI = nil
	return nil
}

// find returns the device of a qualified name, vendor/class=name, and its file.
func find(all []*file, name string) (*file, *edits, error) {
	kind, device, ok := strings.Cut(name, "=")
	if !ok {
		return nil, nil, fmt.Errorf("CDI device %q is not a qualified name, vendor/class=name", name)
	}
	for _, s := range slices.Backward(all) {
		if s.Kind != kind {
			continue
		}
		for i := range s.Devices {
			if s.Devices[i].Name == device {
				return s, &s.Devices[i].Edits, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("unresolvable CDI device %q", name)
}

// read reads the specifications. It skips files that cannot be decoded: they may belong to another vendor.
func read(dirs []string) (all []*file, err error) {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); ext != ".json" && ext != ".yaml" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				continue
			}
			s := &file{}
			if yaml.Unmarshal(text, s) == nil {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// apply adds the edits to an allotment.
func (e *edits) apply(a *spec.Allotment) error {
	for what, needed := range map[string]bool{
		"hooks": len(e.Hooks) > 0, "network devices": len(e.NetDevices) > 0,
		"groups": len(e.AdditionalGIDs) > 0, "resctrl": e.IntelRdt != nil,
	} {
		if needed {
			return fmt.Errorf("it needs %s, which only containerd 2.0 and later can add", what)
		}
	}
	for _, v := range e.Env {
		name, value, _ := strings.Cut(v, "=")
		a.Envs = append(a.Envs, env.Var{Name: name, Value: value})
	}
	for _, n := range e.DeviceNodes {
		d := &cri.Device{ContainerPath: n.Path, HostPath: n.HostPath, Permissions: n.Permissions}
		if d.HostPath == "" {
			d.HostPath = n.Path
		}
		if d.Permissions == "" {
			d.Permissions = "rwm"
		}
		a.Devices = append(a.Devices, d)
	}
	for _, m := range e.Mounts {
		if m.Type != "" && m.Type != "bind" && m.Type != "none" {
			return fmt.Errorf("it mounts %s, which only containerd 2.0 and later can", m.Type)
		}
		a.Mounts = append(a.Mounts, &cri.Mount{
			HostPath: m.HostPath, ContainerPath: m.ContainerPath,
			Readonly: slices.Contains(m.Options, "ro"), Propagation: propagation(m.Options),
		})
	}
	return nil
}

func propagation(options []string) cri.MountPropagation {
	switch {
	case slices.Contains(options, "rshared"), slices.Contains(options, "shared"):
		return cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
	case slices.Contains(options, "rslave"), slices.Contains(options, "slave"):
		return cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	}
	return cri.MountPropagation_PROPAGATION_PRIVATE
}
