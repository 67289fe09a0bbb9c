package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/images/admin"
	"monopod/agent/images/gc"
	"monopod/agent/images/pull"
	"monopod/agent/logs"
	"monopod/agent/node/registrar"
	"monopod/agent/node/shutdown/drain"
	"monopod/agent/node/stream"
	"monopod/agent/pod"
	"monopod/agent/pressure/evictor"
	"monopod/agent/resources/cgroup"
	"monopod/agent/resources/placement"
	"monopod/agent/runtime/relist"
	"monopod/agent/source"
	"monopod/agent/stats"
	"monopod/agent/storage/claims"
	"monopod/agent/storage/csi"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Agent runs the pods bound to its node. It also implements client.Node.
type Agent struct {
	*stream.Streams // implements client.Node
	*drain.Drain    // stops the pods before the machine shuts down
	deps            Deps
	cfg             Config
	guard           *guard.Guard
	machine         *machine
	metrics         *pod.Metrics
	pods            *pods
	owners          *relist.Owners
	loop            *loop
	node            *registrar.Registrar
	images          imageParts
	logs            *logs.Dir
	status          *pod.StatusWriter
	cgroups         *cgroup.Enforcer // nil: the runtime's default
	claims          *claims.Claims
	csi             *csi.Manager
	upkeep          maintenance
	source          *source.Source
	server          http.Handler
}

// imageParts contains the parts for images.
type imageParts struct {
	pulls   *pull.Puller
	preload *pull.Importer
	place   *pull.Place
}

// maintenance contains the parts that maintain the node.
type maintenance struct {
	placement *placement.Placement
	collect   *gc.Collector
	rotate    *logs.Rotator
	evict     *evictor.Evictor
	stats     *stats.Source
}

var _ client.Node = (*Agent)(nil)

// New returns an agent that does nothing until Run is called.
func New(deps Deps, cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if deps.Client == nil || deps.Runtime == nil {
		return nil, errors.New("agent: Client and Runtime are required")
	}
	if cfg.ManifestDir != "" && deps.Complete == nil {
		return nil, errors.New("agent: ManifestDir requires Complete")
	}
	a := &Agent{deps: deps.withDefaults(), cfg: cfg, owners: &relist.Owners{}}
	if err := a.assemble(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// podsMode is the mode of the folder that contains the pods' folders. It protects the secrets in them.
const podsMode = 0o750

// Run registers the node and runs its pods until ctx ends. It leaves the pods running when it returns. It returns an
// error only if the agent can never work.
func (a *Agent) Run(ctx context.Context) error {
	dir := a.cfg.podsDir()
	if err := errors.Join(os.MkdirAll(dir, podsMode), os.Chmod(dir, podsMode), a.logs.Make()); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	defer a.shareMounts()()
	if a.cgroups != nil {
		if err := a.cgroups.Enforce(); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
	}
	a.upkeep.evict.ReadSignals() // before pods are admitted
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	for _, p := range a.parts() {
		a.guard.Go(&parts, p.name, func() { a.guard.Keep(ctx, a.deps.Clock, p.name, func() { p.run(ctx) }) })
	}
	waitForDrivers := a.csi.Start(ctx)
	a.loop.run(ctx)
	cancel()
	a.pods.wait()
	a.status.Wait()
	parts.Wait()
	a.loop.wait()
	waitForDrivers()
	if a.cgroups != nil {
		a.cgroups.Close()
	}
	return nil
}

// shareMounts shares the mounts of pods' volumes with the pods of CSI drivers, which mount them. undo is for the end:
// then nothing stays mounted unless pods run.
func (a *Agent) shareMounts() (undo func()) {
	dirs := []string{a.cfg.podsDir(), filepath.Join(a.cfg.DataDir, "plugins")}
	for _, dir := range dirs {
		if err := errors.Join(os.MkdirAll(dir, podsMode), a.deps.Mounter.ShareTree(dir)); err != nil {
			a.deps.Log.Warn("CSI drivers cannot mount volumes for pods", zap.String("folder", dir), zap.Error(err))
		}
	}
	return func() {
		for _, dir := range dirs {
			if err := a.deps.Mounter.UnshareTree(dir); err != nil {
				a.deps.Log.Warn("failed to unmount", zap.String("folder", dir), zap.Error(err))
			}
		}
	}
}

// part is a function that runs concurrently with the loop. Metrics and health use its name.
type part struct {
	name string
	run  func(context.Context)
}

func (a *Agent) parts() []part {
	return append(a.loop.parts(), []part{
		{"node", a.node.Run}, {"volumes", a.provideVolumes}, {"preload", a.images.preload.Run},
		{"collector", a.upkeep.collect.Run},
		{"logs", a.upkeep.rotate.Run}, {"history", a.upkeep.stats.Record}, {"eviction", a.upkeep.evict.Run},
		{"memory", a.upkeep.evict.Watch}, {"drain", a.Drain.Run},
		{"oom", a.watchOOM}, {"placement", a.upkeep.placement.Run},
		{"addresses", func(ctx context.Context) { a.machine.addresses.Run(ctx, a.node.Poke) }},
	}...)
}

// watchOOM writes an event SystemOOM for each process that the kernel killed because the whole machine was out of
// memory. The container's status reports processes killed by a container's limit.
func (a *Agent) watchOOM(ctx context.Context) {
	for kill := range a.deps.Kernel.Watch(ctx) {
		if kill.System {
			a.node.Event(corev1.EventTypeWarning, "SystemOOM", "%s", kill)
		}
	}
}

// Health returns an error that names the parts and the pods whose workers panicked recently.
func (a *Agent) Health() error { return a.guard.Check() }

// event writes an event about a pod, or about one of its containers.
func (a *Agent) event(pod *corev1.Pod, container, eventType, reason, format string, args ...any) {
	ref := corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
		UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	if container != "" {
		ref.FieldPath = fieldPath(pod, container)
	}
	a.deps.Recorder.Reference(ref, eventType, reason, format, args...)
}

func fieldPath(pod *corev1.Pod, container string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			return "spec.ephemeralContainers{" + container + "}"
		}
	}
	return "spec.containers{" + container + "}"
}

// ImageAdmin returns the interface for administrators to the node's images.
func (a *Agent) ImageAdmin() *admin.Admin {
	return &admin.Admin{Runtime: a.deps.Runtime, Puller: a.images.pulls, Changed: a.imagesArrived,
		Removed: a.images.pulls.Records.Removed, InUse: a.pods.volumeImages}
}

// imagesArrived tells the node and the pods that images were imported.
func (a *Agent) imagesArrived() {
	a.node.ImagesChanged()
	for p := range a.pods.all() {
		p.ImagesArrived()
	}
}

// forget removes the records about a pod of which nothing is left.
func (a *Agent) forget(p *pod.Pod) {
	a.status.Forget(p.UID())
	a.images.pulls.Forget(string(p.UID()))
	a.owners.Forget(p.UID())
	a.node.SetCgroupProblem(string(p.UID()), nil)
}

// releaseClaims releases the pod's claims, after its volumes are unmounted.
func (a *Agent) releaseClaims(uid types.UID) {
	for _, c := range a.claims.Drop(uid) {
		a.pods.wakeForClaim(c.Namespace, c.Name)
	}
}
