package cgroup

import (
	"path"
	"strings"
)

// Units manages systemd's slices: the cgroups that systemd creates. Each call returns when systemd is done. Slices
// implements it.
type Units interface {
	// Start creates a slice that lasts until it is stopped, or sets the properties of
	// an existing one.
	Start(slice string, properties []Property) error
	// Set changes an existing slice, until the next boot.
	Set(slice string, properties []Property) error
	// Stop stops a slice and everything in it; a missing one is not an error.
	Stop(slice string) error
}

// Property is a property of systemd.resource-control(5) or systemd.unit(5).
type Property struct {
	Name  string
	Value any
}

// slice returns the name of a cgroup's slice: dashes separate levels, so dashes
// within a level become underscores.
func slice(name []string) string {
	parts := make([]string, len(name))
	for i, part := range name {
		parts[i] = strings.ReplaceAll(part, "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

// expand returns the path of a slice's folder: a-b.slice is in a.slice.
func expand(slice string) string {
	dir, parts := "/", strings.Split(strings.TrimSuffix(slice, ".slice"), "-")
	for i := range parts {
		dir = path.Join(dir, strings.Join(parts[:i+1], "-")+".slice")
	}
	return dir
}

// properties returns the properties of a new slice.
func (m *Manager) properties(name []string, l Limits) []Property {
	out := []Property{
		{"Description", "monopod: " + strings.Join(name, "/")},
		{"DefaultDependencies", false},
		{"CPUAccounting", true}, {"MemoryAccounting", true}, {"TasksAccounting", true},
	}
	if len(name) > 1 {
		out = append(out, Property{"Wants", []string{slice(name[:len(name)-1])}})
	}
	return append(out, m.limitProperties(l)...)
}

// limitProperties returns the limits as properties, so that systemd does not reset the files. systemd has no property
// for huge pages.
func (m *Manager) limitProperties(l Limits) []Property {
	var out []Property
	add := func(name string, value int64) {
		if value > 0 {
			out = append(out, Property{name, uint64(value)})
		}
	}
	if m.v2 {
		add("CPUWeight", weight(l.Shares))
		add("MemoryMax", l.Memory)
		if p := l.Protection; p != nil {
			out = append(out, Property{"MemoryMin", uint64(p.Min)}, Property{"MemoryLow", uint64(p.Low)})
		}
	} else {
		add("CPUShares", l.Shares)
		add("MemoryLimit", l.Memory)
	}
	const percent = 10000 // in µs per second: systemd rounds to whole percents
	add("CPUQuotaPerSecUSec", (l.Quota*10+percent-1)/percent*percent)
	add("TasksMax", l.PIDs)
	return out
}

// noUnits are Units that do nothing, for computing the folders of slices.
type noUnits struct{}

func (noUnits) Start(string, []Property) error { return nil }
func (noUnits) Set(string, []Property) error   { return nil }
func (noUnits) Stop(string) error              { return nil }
