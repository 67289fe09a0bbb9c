package containers

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/images"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/sandbox"
	"monopod/agent/pod/volumes"
	"monopod/agent/podapi/env"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/cdi"
	"monopod/agent/runtime"
	"monopod/apiserver/kit/client"
)

// maker creates the configs and the files of one pod's containers. It has no state.
type maker struct {
	node     *Node
	pod      *identity.Pod
	observer *observe.Observer
	images   *images.Images
	volumes  *volumes.Volumes
	sandbox  *sandbox.Sandbox
}

// config returns the config of a container. The sandbox and the volumes must exist.
func (m *maker) config(ctx context.Context, pod *corev1.Pod, c *corev1.Container, attempt uint32,
	img *cri.Image) (*cri.ContainerConfig, error) {
	users, err := m.sandbox.UserNamespace(pod)
	if err != nil {
		return nil, err
	}
	if err := m.node.Machine.Check(pod, c, img, m.node.SeccompDir); err != nil {
		return nil, err
	}
	facts := m.observer.Facts(pod)
	facts.File = m.volumes.File
	if facts.Services, err = m.services(ctx, pod, facts); err != nil {
		return nil, err
	}
	vars, err := env.Make(c, facts, volumes.Objects{Context: ctx, Client: m.node.Client, Namespace: pod.Namespace})
	if err != nil {
		return nil, err
	}
	command, err := env.ExpandAll(slices.Concat(c.Command, c.Args), vars)
	if err != nil {
		return nil, err
	}
	mounts, err := m.volumes.Mounts(ctx, pod, c, vars, m.images.VolumeImageIDs(pod),
		func() (string, error) { return m.sandbox.Handler(ctx, pod) })
	if err != nil {
		return nil, err
	}
	files, err := m.files(pod, c, attempt, mounts, facts)
	if err != nil {
		return nil, err
	}
	target, err := m.target(pod, c)
	if err != nil {
		return nil, err
	}
	allotment, err := m.node.Placement.Allotment(ctx, pod, c)
	if err == nil {
		err = m.inject(ctx, &allotment)
	}
	if err != nil {
		return nil, err
	}
	config := spec.Container(pod, c, spec.ContainerOptions{
		Attempt: attempt, Instance: m.node.Instance, ImageRef: img.Id, Env: vars, Command: command[:len(c.Command)],
		Args: command[len(c.Command):], Mounts: append(mounts, files...),
		MessageHostPath: m.messagePath(c.Name, attempt), Memory: m.node.Memory, SeccompDir: m.node.SeccompDir,
		SeccompDefault: m.node.SeccompDefault, Image: img, Users: users, TargetID: target, Allotment: allotment,
	})
	config.Devices = append(config.Devices, m.volumes.Devices(pod, c)...)
	config.Linux.Resources.HugepageLimits = spec.HugePages(c, m.node.PageSizes)
	return config, nil
}

// target returns the running target container of an ephemeral one; empty: none.
func (m *maker) target(pod *corev1.Pod, c *corev1.Container) (string, error) {
	name := spec.Target(pod, c.Name)
	if name == "" {
		return "", nil
	}
	if now := m.observer.Observed().Latest(name); now != nil && now.State == status.Running {
		return now.ID, nil
	}
	return "", fmt.Errorf("%w: unable to find target container %q: it does not run", env.ErrConfig, name)
}

// inject expands CDI devices into mounts, devices and variables if the runtime does not support CDI.
func (m *maker) inject(ctx context.Context, allotment *spec.Allotment) error {
	if len(allotment.CDI) == 0 {
		return nil
	}
	v, err := m.node.Runtime.Version(ctx)
	if err != nil || runtime.AbilitiesOf(v).CDI {
		return err
	}
	if err := cdi.Expand(m.node.CDIDirs, allotment); err != nil {
		return fmt.Errorf("%w: %w", env.ErrConfig, err)
	}
	return nil
}

// services returns the environment variables about Services.
func (m *maker) services(ctx context.Context, pod *corev1.Pod, facts env.Facts) ([]env.Var, error) {
	spaces := []string{pod.Namespace, corev1.NamespaceDefault}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	var all []*corev1.Service
	for _, namespace := range slices.Compact(spaces) {
		list, err := client.List[*corev1.Service](ctx, m.node.Client, client.Selector{Namespace: namespace})
		if err != nil && m.pod.Static { // a static pod also starts without the API
			m.pod.Log.Warn("static pod starts without the environment variables of Services", zap.Error(err))
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list services: %w", err)
		}
		all = append(all, list...)
	}
	if m.node.Server.IsValid() {
		var interfaces []netip.Prefix
		if m.node.Server.Addr().IsUnspecified() && !pod.Spec.HostNetwork {
			interfaces = host.Networks()
		}
		all = env.WithServer(all, // at the address at which the pod reaches it
			env.ServerFor(m.node.Server, pod.Spec.HostNetwork, facts.PodIPs, interfaces, m.node.HostIPs()[0]))
	}
	return env.Services(all, pod.Namespace, links), nil
}
