package spec

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/env"
)

// Allotment is the part of a container's config for its exclusive resources. The zero value changes nothing.
type Allotment struct {
	CPUs, Mems  string // cpuset.cpus and cpuset.mems; empty: all
	Exclusive   bool   // CPUs are exclusive
	Devices     []*cri.Device
	Mounts      []*cri.Mount
	Envs        []env.Var // variables in the spec take precedence
	Annotations map[string]string
	CDI         []*cri.CDIDevice
}

// Add merges the allotment of another provider.
func (a *Allotment) Add(b Allotment) {
	if b.CPUs != "" {
		a.CPUs = b.CPUs
	}
	if b.Mems != "" {
		a.Mems = b.Mems
	}
	a.Exclusive = a.Exclusive || b.Exclusive
	a.Devices = append(a.Devices, b.Devices...)
	a.Mounts = append(a.Mounts, b.Mounts...)
	a.Envs = append(a.Envs, b.Envs...)
	a.CDI = append(a.CDI, b.CDI...)
	for k, v := range b.Annotations {
		a.Annotate(k, v)
	}
}

// Annotate sets an annotation.
func (a *Allotment) Annotate(key, value string) {
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	a.Annotations[key] = value
}
