package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/node/host"
	"monopod/agent/pod/env"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/apiserver/client"
)

// blocked is why a container does not start now, and when to try again; a zero
// retry leaves that to whoever wakes the worker.
type blocked struct {
	status.Waiting
	retry time.Duration
}

func (b *blocked) Error() string { return b.Reason + ": " + b.Message }

// configRetry is between attempts to start a container that cannot be: a mistake
// in its config, an error of the runtime (SPEC 5: error backoff 10 s).
const configRetry = 10 * time.Second

// startAll starts containers in order. One that must wait does not hold up the
// next; again says that one has started.
func (w *worker) startAll(ctx context.Context, list []*corev1.Container) (again bool, err error) {
	for _, c := range list {
		err := w.start(ctx, c)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		again = again || err == nil
		if err := w.blockedBy(c.Name, err); err != nil {
			return false, err
		}
	}
	return again && w.moreAfter(list), nil
}

// blockedBy is err, unless it only says why the container has to wait.
func (w *worker) blockedBy(name string, err error) error {
	b := &blocked{}
	if !errors.As(err, &b) {
		return err
	}
	if b.Reason != "" {
		w.waiting[name] = b.Waiting
	}
	if b.retry > 0 {
		w.retryIn(b.retry)
	}
	return nil
}

// moreAfter says whether starting list may let others start: only init
// containers do.
func (w *worker) moreAfter(list []*corev1.Container) bool {
	for _, c := range list {
		if status.Sidecar(c) {
			return true
		}
	}
	return false
}

// start makes and starts one container, or says why not.
func (w *worker) start(ctx context.Context, c *corev1.Container) error {
	last := w.seen.Latest(c.Name)
	if err := w.crashed(c, last); err != nil {
		return err
	}
	img, err := w.bringImages(ctx, c)
	if err != nil {
		return err
	}
	restarts, ended := last != nil && last.State == status.Exited && w.anew[c.Name] == 0, time.Time{}
	if restarts {
		ended = last.FinishedAt
	}
	id, err := w.create(ctx, c, last, img)
	if err != nil {
		return err
	}
	if restarts {
		w.crashes.Attempt(c.Name, ended, w.a.Clock.Now())
		delete(w.announced, c.Name)
	}
	return w.launch(ctx, c, id)
}

// crashed holds back a container that ended too short a time ago.
func (w *worker) crashed(c *corev1.Container, last *status.Container) error {
	if last == nil || last.State != status.Exited || w.anew[c.Name] > 0 {
		return nil
	}
	rest, delay := w.crashes.Remaining(c.Name, last.FinishedAt, w.a.Clock.Now())
	if rest <= 0 {
		return nil
	}
	if !w.announced[c.Name] {
		w.announced[c.Name] = true
		w.a.event(w.pod, c.Name, corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", c.Name, podID(w.pod))
	}
	return &blocked{retry: rest, Waiting: status.Waiting{
		Reason:  "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %v restarting failed container=%s pod=%s", delay, c.Name, podID(w.pod)),
	}}
}

// podID names a pod as kubelet's messages do.
func podID(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

// create makes the container, unless an agent that was killed has made it already.
func (w *worker) create(ctx context.Context, c *corev1.Container, last *status.Container, img *cri.Image) (string, error) {
	if sandbox := w.seen.Sandbox(); last != nil && last.State == status.Created && last.SandboxID == sandbox.ID && last.Hash == spec.Hash(c) {
		return last.ID, nil
	}
	attempt := w.nextAttempt(c.Name, last)
	if last != nil && last.State == status.Created { // of an older spec, or in a sandbox that is no more
		if err := w.unmake(last.ID); err != nil {
			return "", err
		}
	}
	config, err := w.containerConfig(ctx, c, attempt, img)
	if err == nil {
		err = os.MkdirAll(filepath.Join(w.a.logs.Pod(w.pod), c.Name), 0o755)
	}
	if err != nil {
		return "", w.refuseStart(c, "CreateContainerConfigError", err)
	}
	id, err := w.a.Runtime.CreateContainer(w.life, w.seen.Sandbox().ID, config, w.presentSandbox())
	if w.undecided(err) {
		return "", fmt.Errorf("create container: %w", err)
	}
	if err != nil {
		w.forgetImages(c) // they may have been removed since they were looked for
		return "", w.refuseStart(c, whyNotCreated(err), err)
	}
	w.a.owners.add(id, w.uid)
	w.a.placement.Made(id, config)
	w.a.event(w.pod, c.Name, corev1.EventTypeNormal, "Created", "Container created")
	w.seen.Containers = append(w.seen.Containers, status.Container{
		ID: id, Name: c.Name, Attempt: attempt, SandboxID: w.seen.Sandbox().ID, Hash: spec.Hash(c), Image: c.Image,
		CreatedAt: w.a.Clock.Now(), MessagePath: w.messagePath(c.Name, attempt), MessagePolicy: string(c.TerminationMessagePolicy),
		Resources: c.Resources.DeepCopy(),
	})
	return id, nil
}

func (w *worker) refuseStart(c *corev1.Container, reason string, err error) error {
	text := strings.TrimPrefix(err.Error(), env.ErrConfig.Error()+": ") // the reason says that already
	w.a.event(w.pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: %s", text)
	return &blocked{retry: configRetry, Waiting: status.Waiting{Reason: reason, Message: text}}
}

// nextAttempt counts on from what the runtime has, else from what was stored.
func (w *worker) nextAttempt(name string, last *status.Container) uint32 {
	switch {
	case last != nil && last.State == status.Created:
		return last.Attempt
	case last != nil:
		return last.Attempt + 1
	}
	known := &w.pod.Status
	if w.reported != nil {
		known = w.reported
	}
	for _, list := range [][]corev1.ContainerStatus{known.InitContainerStatuses, known.ContainerStatuses} {
		for _, s := range list {
			switch {
			case s.Name != name || s.ContainerID == "":
			case status.Ran(&s):
				return uint32(s.RestartCount) + 1
			default: // it was removed before it ran
				return uint32(s.RestartCount)
			}
		}
	}
	return 0
}

func (w *worker) containerConfig(ctx context.Context, c *corev1.Container, attempt uint32, img *cri.Image) (*cri.ContainerConfig, error) {
	if err := w.checkSecurity(c, img); err != nil {
		return nil, err
	}
	facts := w.facts()
	facts.File = w.envFile
	var err error
	if facts.Services, err = w.services(ctx); err != nil {
		return nil, err
	}
	vars, err := env.Make(c, facts, objects{ctx, w.a.Client, w.pod.Namespace})
	if err != nil {
		return nil, err
	}
	mounts, err := w.mounts(ctx, c, vars)
	if err != nil {
		return nil, err
	}
	files, err := w.ownFiles(c, attempt, mounts)
	if err != nil {
		return nil, err
	}
	target, err := w.target(c)
	if err != nil {
		return nil, err
	}
	allotment, err := w.a.placement.Allotment(ctx, w.pod, c)
	if err == nil {
		err = w.canName(ctx, allotment.CDI)
	}
	if err != nil {
		return nil, err
	}
	memory := w.a.capacity[corev1.ResourceMemory]
	config := spec.Container(w.pod, c, spec.ContainerOptions{
		Attempt: attempt, Instance: w.a.cfg.Instance, ImageRef: img.Id,
		Env: vars, Mounts: append(mounts, files...),
		MessageHostPath: w.messagePath(c.Name, attempt), MemoryCapacity: memory.Value(),
		SeccompDir: w.a.seccompDir(), SeccompDefault: w.a.cfg.Security.SeccompDefault, Image: img, Users: w.users, TargetID: target, Allotment: allotment,
	})
	config.Devices = append(config.Devices, w.blockDevices(c)...)
	config.Linux.Resources.HugepageLimits = spec.HugePages(c, w.a.pageSizes)
	return config, nil
}

// target is the running container whose processes an ephemeral one is to see;
// empty: none.
func (w *worker) target(c *corev1.Container) (string, error) {
	name := spec.Target(w.pod, c.Name)
	if name == "" {
		return "", nil
	}
	if now := w.seen.Latest(name); now != nil && now.State == status.Running {
		return now.ID, nil
	}
	return "", fmt.Errorf("%w: unable to find target container %q: it does not run", env.ErrConfig, name)
}

// services are what the containers' environment says of services.
func (w *worker) services(ctx context.Context) ([]env.Var, error) {
	spaces := []string{w.pod.Namespace, corev1.NamespaceDefault}
	links := w.pod.Spec.EnableServiceLinks == nil || *w.pod.Spec.EnableServiceLinks
	var all []*corev1.Service
	for _, namespace := range slices.Compact(spaces) {
		list, err := client.List[*corev1.Service](ctx, w.a.Client, client.Selector{Namespace: namespace})
		if err != nil && w.static { // it starts also where no API is
			w.log.Warn("static pod is not told of services", zap.Error(err))
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list services: %w", err)
		}
		all = append(all, list...)
	}
	if w.a.cfg.Server.IsValid() {
		all = env.WithServer(all, w.server())
	}
	return env.Services(all, w.pod.Namespace, links), nil
}

// server is where the pod reaches the API; zero: nowhere.
func (w *worker) server() netip.AddrPort {
	listen := w.a.cfg.Server
	var interfaces []netip.Prefix
	if listen.Addr().IsUnspecified() && !w.pod.Spec.HostNetwork {
		interfaces = host.Networks()
	}
	return env.ServerFor(listen, w.pod.Spec.HostNetwork, w.facts().PodIPs, interfaces, w.a.hostIPs[0])
}

// ownFiles writes the files the agent itself brings into a container: /etc/hosts
// unless the pod mounts its own, and the termination message.
func (w *worker) ownFiles(c *corev1.Container, attempt uint32, mounts []*cri.Mount) ([]*cri.Mount, error) {
	message := w.messagePath(c.Name, attempt)
	if err := os.MkdirAll(filepath.Dir(message), 0o750); err != nil {
		return nil, err
	}
	if err := writeFile(message, "", 0o666); err != nil {
		return nil, err
	}
	var out []*cri.Mount
	if c.TerminationMessagePath != "" {
		out = append(out, &cri.Mount{ContainerPath: c.TerminationMessagePath, HostPath: message})
	}
	for _, m := range mounts {
		if filepath.Clean(m.ContainerPath) == "/etc/hosts" {
			return out, nil
		}
	}
	hosts, err := w.hostsFile()
	return append(out, &cri.Mount{ContainerPath: "/etc/hosts", HostPath: hosts}), err
}

func (w *worker) hostsFile() (string, error) {
	var node string
	if w.pod.Spec.HostNetwork {
		b, err := os.ReadFile("/etc/hosts")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		node = string(b)
	}
	path := filepath.Join(w.a.podDir(w.uid), "etc-hosts")
	return path, writeFile(path, spec.Hosts(w.pod, w.facts().PodIPs, w.a.cfg.ClusterDomain, node), 0o644)
}

// writeFile gives the file its mode whatever the umask.
func writeFile(path, text string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
