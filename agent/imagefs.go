package agent

import "context"

// imageRoot is on the file system that images lie on: where the runtime says, once
// it has been asked, else where it probably is.
func (a *Agent) imageRoot() string {
	if found := a.imagesAt.Load(); found != nil {
		return *found
	}
	return a.cfg.ImageRoot
}

// findImages asks the runtime where images lie. One that does not know is asked
// again.
func (a *Agent) findImages(ctx context.Context) {
	if a.imagesAt.Load() != nil {
		return
	}
	info, err := a.Runtime.ImageFsInfo(ctx)
	if err != nil {
		return
	}
	for _, fs := range info.ImageFilesystems {
		if at := fs.GetFsId().GetMountpoint(); at != "" {
			a.imagesAt.Store(&at)
			return
		}
	}
}
