package spec

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/env"
)

// ContainerOptions contains the inputs of a container config that are not in the spec.
type ContainerOptions struct {
	Attempt         uint32
	Instance        string
	ImageRef        string // the runtime's ID of the image
	Env             []env.Var
	Command, Args   []string // expanded
	Mounts          []*cri.Mount
	MessageHostPath string // source of the mount at terminationMessagePath
	Memory          Memory // of the node
	SeccompDir      string // of Localhost profiles
	SeccompDefault  bool   // the runtime's profile for containers without a seccomp profile
	Image           *cri.Image
	Users           *cri.UserNamespace // of the sandbox
	TargetID        string             // ID of the container whose PID namespace this one joins; empty: none
	// Allotment is the container's exclusive resources.
	Allotment Allotment
}

// Container returns the config of one container.
func Container(pod *corev1.Pod, c *corev1.Container, o ContainerOptions) *cri.ContainerConfig {
	security := containerSecurity(pod, c, o)
	if o.TargetID != "" {
		security.NamespaceOptions.Pid, security.NamespaceOptions.TargetId = cri.NamespaceMode_TARGET, o.TargetID
	}
	for _, m := range o.Mounts { // the processes of a user namespace see the same owners of files as on the disk
		m.UidMappings, m.GidMappings = o.Users.GetUids(), o.Users.GetGids()
	}
	config := &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: c.Name, Attempt: o.Attempt},
		Image:       &cri.ImageSpec{Image: o.ImageRef, UserSpecifiedImage: c.Image},
		Command:     o.Command,
		Args:        o.Args,
		WorkingDir:  c.WorkingDir,
		Envs:        keyValues(o.Env),
		Mounts:      o.Mounts,
		Labels:      map[string]string{LabelContainerName: c.Name},
		Annotations: containerAnnotations(pod, c, o),
		LogPath:     LogPath(c.Name, o.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &cri.LinuxContainerConfig{
			Resources:       Resources(pod, c, o.Memory),
			SecurityContext: security,
		},
	}
	identify(config.Labels, pod, o.Instance)
	// Add the exclusive resources. The spec takes precedence over a device plugin.
	a := o.Allotment
	r := config.Linux.Resources
	r.CpusetCpus, r.CpusetMems = a.CPUs, a.Mems
	config.Devices = append(config.Devices, a.Devices...)
	config.CDIDevices = append(config.CDIDevices, a.CDI...)
	for _, m := range a.Mounts {
		if !slices.ContainsFunc(config.Mounts, func(has *cri.Mount) bool { return has.ContainerPath == m.ContainerPath }) {
			config.Mounts = append(config.Mounts, m)
		}
	}
	for _, v := range a.Envs {
		if !slices.ContainsFunc(config.Envs, func(has *cri.KeyValue) bool { return has.Key == v.Name }) {
			config.Envs = append(config.Envs, keyValues([]env.Var{v})...)
		}
	}
	for k, v := range a.Annotations {
		if _, has := config.Annotations[k]; !has {
			config.Annotations[k] = v
		}
	}
	return config
}

func keyValues(vars []env.Var) []*cri.KeyValue {
	out := make([]*cri.KeyValue, 0, len(vars))
	for _, v := range vars {
		out = append(out, &cri.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	return out
}

func containerAnnotations(pod *corev1.Pod, c *corev1.Container, o ContainerOptions) map[string]string {
	m := map[string]string{
		annotationHash:          Hash(c),
		annotationRestarts:      strconv.FormatUint(uint64(o.Attempt), 10),
		annotationMessagePath:   c.TerminationMessagePath,
		annotationMessagePolicy: string(c.TerminationMessagePolicy),
		annotationMessageHost:   o.MessageHostPath,
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		m[annotationGrace] = strconv.FormatInt(Seconds(*g), 10)
	}
	return m
}
