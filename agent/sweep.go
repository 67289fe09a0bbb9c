package agent

import (
	"errors"
	"os"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/volume"
)

// sweep removes, at the start, what a crash or an older life has left.
func (a *Agent) sweep() {
	a.sweepPods()
	a.sweepCgroups()
	a.sweepLogs()
	a.sweepLinks()
	close(a.swept)
	a.evict.Poke() // what is short at the start need not wait
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

// sweepPods removes the folders of pods that no worker has. One with something
// mounted that cannot be unmounted stays, and is tried again with the next pass over
// dead containers.
func (a *Agent) sweepPods() {
	for _, name := range entries(a.podsDir()) {
		if a.worker(types.UID(name)) != nil {
			continue
		}
		set := volume.Set{Dir: a.podDir(types.UID(name)), Mounter: a.Mounter}
		if err := set.Teardown(); err != nil {
			a.log.Warn("cannot remove the folder of a pod that no longer exists", zap.String("uid", name), zap.Error(err))
		}
	}
}

// entries are the names in a folder, sorted. Looking must not become a write: the
// time of the last look is left as it is, where the file system lets us.
func entries(dir string) []string {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOATIME, 0)
	if errors.Is(err, os.ErrPermission) { // the folder is somebody else's
		f, err = os.Open(dir)
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	slices.Sort(names)
	return names
}
