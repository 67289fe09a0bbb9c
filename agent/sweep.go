package agent

import (
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/logs/logdir"
	"monopod/agent/resources/enforce"
	"monopod/agent/storage/volume"
	"monopod/apiserver/process/folder"
)

// sweeper removes what a crash or an older life has left of pods.
type sweeper struct {
	cfg     *Config
	log     *zap.Logger
	pods    *pods
	logs    *logdir.Dir
	mounter volume.Mounter
	cgroups *enforce.Enforcer // nil: there are none
	poke    func()            // has the evictor look: what is short at the start need not wait
	swept   chan struct{}     // closed when the pods of the API are known, and the rest is removed
}

// run sweeps at the start.
func (s *sweeper) run() {
	defer s.poke()
	defer close(s.swept)
	s.folders()
	if s.cgroups != nil {
		s.cgroups.Sweep(s.pods.there)
	}
}

// over says whether run is: the node knows its pods.
func (s *sweeper) over() bool {
	select {
	case <-s.swept:
		return true
	default:
		return false
	}
}

// folders removes what lies on the disk for pods that are not there. A folder with
// something mounted that cannot be unmounted stays, and is tried again with the next pass
// over dead containers.
func (s *sweeper) folders() (logFolders, logLinks int) {
	for _, name := range folder.Names(s.cfg.podsDir()) {
		uid := types.UID(name)
		if s.pods.there(uid) {
			continue
		}
		set := volume.Set{Dir: s.cfg.podDir(uid), Mounter: s.mounter}
		if err := set.Teardown(); err != nil {
			s.log.Warn("cannot remove the folder of a pod that no longer exists", zap.String("uid", name), zap.Error(err))
		}
	}
	return s.logs.Sweep(s.pods.there)
}
