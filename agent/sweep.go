package agent

import (
	"context"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host"
	"monopod/agent/logs"
	"monopod/agent/resources/cgroup"
	"monopod/agent/storage/volume"
)

// driverTimeout is how long CSI drivers may take to unmount the volumes of an orphaned pod; the next sweep tries again.
const driverTimeout = 10 * time.Second

// sweeper removes leftovers of pods after a crash or an earlier start.
type sweeper struct {
	cfg         *Config
	log         *zap.Logger
	pods        *pods
	logs        *logs.Dir
	mounter     volume.Mounter
	drivers     volume.Drivers
	cgroups     *cgroup.Enforcer // nil: there are none
	pokeEvictor func()           // called at the end of run, so that a shortage at start is handled at once
	swept       chan struct{}    // closed at the end of run: the API's pods are listed
}

// run removes the leftovers once, after the first list of the API's pods.
func (s *sweeper) run(ctx context.Context) {
	defer s.pokeEvictor()
	defer close(s.swept)
	s.removeFolders(ctx)
	if s.cgroups != nil {
		s.cgroups.Sweep(s.pods.exists)
	}
}

// done reports whether run has finished, and so whether the API's pods are listed.
func (s *sweeper) done() bool {
	select {
	case <-s.swept:
		return true
	default:
		return false
	}
}

// removeFolders removes the folders of pods that do not exist. It keeps a folder with a mount that fails to unmount;
// the next garbage collection of containers tries again.
func (s *sweeper) removeFolders(ctx context.Context) (logFolders, logLinks int) {
	for _, name := range host.Names(s.cfg.podsDir()) {
		uid := types.UID(name)
		if s.pods.exists(uid) {
			continue
		}
		short, cancel := context.WithTimeout(ctx, driverTimeout)
		set := volume.Set{Dir: s.cfg.podDir(uid), Mounter: s.mounter, Drivers: s.drivers}
		if err := set.Teardown(short); err != nil {
			s.log.Warn("failed to remove the folder of an orphaned pod", zap.String("uid", name), zap.Error(err))
		}
		cancel()
	}
	return s.logs.Sweep(s.pods.exists)
}
