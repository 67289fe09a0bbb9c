package agent

import (
	"cmp"
	"context"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// imageRoot is on the file system that images lie on: where the runtime says, once
// it has been asked, else where it probably is.
func (a *Agent) imageRoot() string {
	if found := a.imagesAt.Load(); found != nil {
		return *found
	}
	return a.cfg.ImageRoot
}

// findImages asks the runtime where images lie, until it has answered once, be it
// that it does not know.
func (a *Agent) findImages(ctx context.Context) {
	if a.imagesAt.Load() != nil {
		return
	}
	info, err := a.Runtime.ImageFsInfo(ctx)
	if err != nil && grpcstatus.Code(err) != codes.Unimplemented {
		return
	}
	at := a.cfg.ImageRoot
	for _, fs := range info.GetImageFilesystems() {
		at = cmp.Or(fs.GetFsId().GetMountpoint(), at)
	}
	a.imagesAt.Store(&at)
}
