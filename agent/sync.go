package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/pod/env"
	"monopod/agent/pod/plan"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/storage/volume"
	"monopod/apiserver/process/guard"
)

// sync brings the pod nearer to running: it carries out plans until none has
// anything to do now.
func (w *worker) sync(ctx context.Context) error {
	for {
		again, err := w.round(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.report(false)
		if err != nil || !again {
			return err
		}
	}
}

// round carries out one plan; again says that a next one may have more to do.
func (w *worker) round(ctx context.Context) (again bool, err error) {
	w.waiting = map[string]status.Waiting{}
	w.probes.Keep(w.isRunning)
	if err := w.settleStarts(ctx); err != nil {
		return false, err
	}
	p := plan.For(plan.Input{Pod: w.pod, Seen: &w.seen, Started: w.probes.Started, Failed: w.condemned})
	if p.RestartAll != nil {
		return w.restartAll(ctx, p)
	}
	if p.NewSandbox {
		if able, err := w.able(ctx); !able {
			return false, err
		}
		if ok, err := w.prepareDevices(ctx); !ok {
			return false, err
		}
	}
	if err := w.ground(ctx, p); err != nil {
		w.waitForVolumes()
		return false, err
	}
	if len(p.Kill) > 0 {
		return true, w.killSome(ctx, p.Kill)
	}
	if restart := w.resize(ctx); len(restart) > 0 {
		return true, w.killSome(ctx, restart)
	}
	if len(p.Start) == 0 {
		return false, nil
	}
	return w.startAll(ctx, p.Start)
}

func (w *worker) isRunning(id string) bool {
	c := w.seen.ByID(id)
	return c != nil && c.State == status.Running
}

func (w *worker) condemned(id string) (string, bool) {
	kind, ok := w.probes.Failed(id)
	return strings.ToLower(kind.String()), ok
}

// ground prepares what containers stand on, all at once: the sandbox, the volumes,
// and a first look at the images.
func (w *worker) ground(ctx context.Context, p plan.Plan) error {
	if !p.NewSandbox {
		return w.prepareVolumes(ctx, w.facts(), len(p.Start) > 0)
	}
	if err := w.dropSandbox(ctx); err != nil {
		return err
	}
	w.report(false) // ContainerCreating; stored while the sandbox starts
	var volumes error
	facts := w.facts()
	var looks map[string]imageResult
	var beside guard.Group
	beside.Do(func() error { volumes = w.prepareVolumes(ctx, facts, true); return nil })
	beside.Do(func() error { looks = w.lookForImages(ctx, p.Start); return nil })
	err := guard.Call(func() error { return w.newSandbox(ctx, p.Attempt) }) // the others are waited for all the same
	if panicked := beside.Wait(); panicked != nil {
		return panicked
	}
	for name, r := range looks {
		w.images[name] = &imageState{image: r.image}
	}
	return errors.Join(err, volumes)
}

// prepareVolumes makes the volumes before containers start, and refreshes them
// when something they show has changed.
func (w *worker) prepareVolumes(ctx context.Context, facts env.Facts, starting bool) error {
	w.refresh = w.refresh || w.volumes != nil && w.a.tokens.Due(w.uid)
	if !w.refresh && (w.volumes != nil || !starting) {
		return nil
	}
	set := w.volumeSet(ctx)
	plugins := map[string]string{}
	set.Saw = func(name, plugin string, took time.Duration, err error) {
		plugins[name] = plugin
		w.a.metrics.mount(plugin, took, err)
	}
	paths, err := set.Prepare(ctx, facts)
	w.unmounted = err
	if err != nil {
		w.tellUnmounted()
		if w.volumes != nil {
			w.refresh = false
			w.log.Warn("volumes not refreshed", zap.Error(err))
			return nil // what is mounted stays as it was
		}
		return err
	}
	w.volumes, w.refresh = paths, false
	w.mounted.Store(true)
	w.place(paths, plugins)
	return nil
}

func (w *worker) volumeSet(ctx context.Context) *volume.Set {
	pod := w.pod
	return &volume.Set{
		Dir: w.a.podDir(w.uid), Mounter: w.a.Mounter, Source: w.immutable.Over(objects{ctx, w.a.Client, w.pod.Namespace}),
		Claim: w.claimed, Have: w.volumes,
		Token: func(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error) {
			return w.a.tokens.Get(ctx, pod, p)
		},
	}
}

// facts are what field references may ask for.
func (w *worker) facts() env.Facts {
	f := env.Facts{Pod: w.pod, HostIPs: w.a.hostIPs, Allocatable: w.a.allocatable}
	if w.pod.Spec.HostNetwork {
		f.PodIPs = w.a.hostIPs
	} else if s := w.seen.Sandbox(); s != nil {
		f.PodIPs = s.IPs
	}
	return f
}

// dropSandbox ends what is left of a dead sandbox: its containers, its address.
func (w *worker) dropSandbox(ctx context.Context) error {
	old := w.seen.Sandbox()
	if old == nil {
		return nil
	}
	if slices.ContainsFunc(w.seen.Containers, func(c status.Container) bool { return c.SandboxID == old.ID }) {
		w.a.event(w.pod, "", corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	if err := w.kill(ctx, w.seen.Alive(), "Pod sandbox changed"); err != nil {
		return err
	}
	return w.a.Runtime.StopPodSandbox(ctx, old.ID)
}

func (w *worker) newSandbox(ctx context.Context, attempt uint32) error {
	if w.a.cgroups != nil {
		w.a.enforceAgain()
		w.a.node.Lacks(string(w.uid), w.a.metrics.cage("create", func() error { return w.a.cgroups.Create(w.pod) }))
	}
	config, handler, err := w.newSandboxConfig(ctx, attempt)
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return err
	}
	id := ""
	if err == nil {
		id, err = w.a.Runtime.RunPodSandbox(w.life, config, handler)
	}
	if w.undecided(err) {
		return fmt.Errorf("create sandbox: %w", err)
	}
	if err != nil {
		w.blameClass(err)
		w.a.event(w.pod, "", corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return fmt.Errorf("create sandbox: %w", err)
	}
	w.a.owners.add(id, w.uid)
	w.seen.Sandboxes = append(w.seen.Sandboxes, status.Sandbox{ID: id, Attempt: attempt, Ready: true, CreatedAt: w.a.Clock.Now()})
	made, err := w.a.inventory(nil).Sandbox(ctx, id)
	if err != nil {
		return err
	}
	if made != nil {
		w.seen.Sandboxes[len(w.seen.Sandboxes)-1] = *made
	}
	return nil
}

func (w *worker) sandboxConfig(attempt uint32) *cri.PodSandboxConfig {
	o := spec.SandboxOptions{
		Users:   w.users,
		Attempt: attempt, Instance: w.a.cfg.Instance,
		LogDir: w.a.logs.Pod(w.pod), Domain: w.a.cfg.ClusterDomain,
		DNS: spec.DNS(w.pod, w.a.resolv, spec.Cluster{DNS: w.a.cfg.ClusterDNS, Domain: w.a.cfg.ClusterDomain}),
	}
	if w.a.cgroups != nil {
		o.CgroupParent = w.a.cgroups.Parent(w.pod)
	}
	return spec.Sandbox(w.pod, o)
}

// presentSandbox is the config the living sandbox was made from.
func (w *worker) presentSandbox() *cri.PodSandboxConfig {
	return w.sandboxConfig(w.seen.Sandbox().Attempt)
}

func (w *worker) messagePath(container string, attempt uint32) string {
	return filepath.Join(w.a.podDir(w.uid), "containers", container, fmt.Sprint(attempt))
}

// forgetStarted drops what was prepared for containers that now run.
func (w *worker) forgetStarted(name string) {
	delete(w.images, name)
	delete(w.waiting, name)
}
