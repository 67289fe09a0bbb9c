package agent

import (
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/storage/volume"
	"monopod/apiserver/process/folder"
)

// sweep removes, at the start, what a crash or an older life has left.
func (a *Agent) sweep() {
	defer a.evict.Poke() // what is short at the start need not wait
	defer close(a.swept)
	a.sweepFolders()
	a.sweepCgroups()
}

// knowsPods says whether sweep is over.
func (a *Agent) knowsPods() bool {
	select {
	case <-a.swept:
		return true
	default:
		return false
	}
}

// sweepFolders removes what lies on the disk for pods that no worker has.
func (a *Agent) sweepFolders() (logFolders, logLinks int) {
	a.sweepPods()
	return a.logs.Sweep(func(uid types.UID) bool { return a.pod(uid) != nil })
}

// sweepPods removes the folders of pods that no worker has. One with something
// mounted that cannot be unmounted stays, and is tried again with the next pass over
// dead containers.
func (a *Agent) sweepPods() {
	for _, name := range folder.Names(a.podsDir()) {
		if a.pod(types.UID(name)) != nil {
			continue
		}
		set := volume.Set{Dir: a.podDir(types.UID(name)), Mounter: a.Mounter}
		if err := set.Teardown(); err != nil {
			a.log.Warn("cannot remove the folder of a pod that no longer exists", zap.String("uid", name), zap.Error(err))
		}
	}
}
