package cgroup

import (
	"path"
	"strings"
)

// Units are systemd's slices, which are cgroups to it. Each call returns when the
// slice is as it should be. Package systemd implements it.
type Units interface {
	// Start makes a slice that lasts until it is stopped, or gives the properties to
	// one that is there.
	Start(slice string, properties []Property) error
	// Set changes a slice that is there, until the machine is booted.
	Set(slice string, properties []Property) error
	// Stop ends a slice with all that is in it; one that is not there is no error.
	Stop(slice string) error
}

// Property is one of systemd.resource-control(5) or systemd.unit(5).
type Property struct {
	Name  string
	Value any
}

// slice is the name of the slice of a cgroup: dashes part what is nested, so those
// within a part become underscores.
func slice(name []string) string {
	parts := make([]string, len(name))
	for i, part := range name {
		parts[i] = strings.ReplaceAll(part, "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

// expand is the folder that systemd gives a slice: a-b.slice is in a.slice.
func expand(slice string) string {
	dir, parts := "/", strings.Split(strings.TrimSuffix(slice, ".slice"), "-")
	for i := range parts {
		dir = path.Join(dir, strings.Join(parts[:i+1], "-")+".slice")
	}
	return dir
}

// properties are all that a new slice is made with.
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

// limitProperties say what the files say, so that systemd does not set them back.
// It does not know of huge pages.
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
	} else {
		add("CPUShares", l.Shares)
		add("MemoryLimit", l.Memory)
	}
	const percent = 10000 // µs of a second: what systemd counts in
	add("CPUQuotaPerSecUSec", (l.Quota*10+percent-1)/percent*percent)
	add("TasksMax", l.PIDs)
	return out
}

// noUnits are for one who wants to know slices' folders only.
type noUnits struct{}

func (noUnits) Start(string, []Property) error { return nil }
func (noUnits) Set(string, []Property) error   { return nil }
func (noUnits) Stop(string) error              { return nil }
