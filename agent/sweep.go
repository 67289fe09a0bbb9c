package agent

import (
	"os"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/volume"
)

// sweep removes, at the start, the folders of pods that no worker has: what a
// crash or an older life has left.
func (a *Agent) sweep() {
	for _, name := range entries(a.podsDir()) {
		if a.worker(types.UID(name)) != nil {
			continue
		}
		set := volume.Set{Dir: a.podDir(types.UID(name)), Mounter: a.Mounter}
		if err := set.Teardown(); err != nil {
			a.log.Warn("cannot remove the folder of a pod that no longer exists", zap.String("uid", name), zap.Error(err))
		}
	}
	a.sweepLogs()
	a.sweepLinks()
	a.swept.Store(true)
}

func entries(dir string) []string {
	list, _ := os.ReadDir(dir)
	out := make([]string, 0, len(list))
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}
