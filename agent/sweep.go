package agent

import (
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host"
	"monopod/agent/logs"
	"monopod/agent/resources/cgroup"
	"monopod/agent/storage/volume"
)

// sweeper removes leftovers of pods after a crash or an earlier start.
type sweeper struct {
	cfg         *Config
	log         *zap.Logger
	pods        *pods
	logs        *logs.Dir
	mounter     volume.Mounter
	cgroups     *cgroup.Enforcer // nil: there are none
	pokeEvictor func()           // called at the end of run, so that a shortage at start is handled at once
	swept       chan struct{}    // closed at the end of run: the API's pods are listed
}

// run removes the leftovers once, after the first list of the API's pods.
func (s *sweeper) run() {
	defer s.pokeEvictor()
	defer close(s.swept)
	s.removeFolders()
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
func (s *sweeper) removeFolders() (logFolders, logLinks int) {
	for _, name := range host.Names(s.cfg.podsDir()) {
		uid := types.UID(name)
		if s.pods.exists(uid) {
			continue
		}
		set := volume.Set{Dir: s.cfg.podDir(uid), Mounter: s.mounter}
		if err := set.Teardown(); err != nil {
			s.log.Warn("failed to remove the folder of an orphaned pod", zap.String("uid", name), zap.Error(err))
		}
	}
	return s.logs.Sweep(s.pods.exists)
}
