package pull

import (
	"cmp"
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FsInfoRuntime is a runtime that may report the file system of its images. If it cannot, it returns Unimplemented.
type FsInfoRuntime interface {
	ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error)
}

// Place finds the file system that contains the images.
type Place struct {
	runtime     FsInfoRuntime
	defaultRoot string
	root        atomic.Pointer[string] // nil: the runtime has not answered yet
}

// NewPlace returns a Place at defaultRoot, until the runtime reports another one.
func NewPlace(runtime FsInfoRuntime, defaultRoot string) *Place {
	return &Place{runtime: runtime, defaultRoot: defaultRoot}
}

// Root returns a path on the images' file system.
func (p *Place) Root() string {
	if found := p.root.Load(); found != nil {
		return *found
	}
	return p.defaultRoot
}

// Find asks the runtime for the file system, unless it has answered before, even with Unimplemented.
func (p *Place) Find(ctx context.Context) {
	if p.root.Load() != nil {
		return
	}
	info, err := p.runtime.ImageFsInfo(ctx)
	if err != nil && grpcstatus.Code(err) != codes.Unimplemented {
		return
	}
	at := p.defaultRoot
	for _, fs := range info.GetImageFilesystems() {
		at = cmp.Or(fs.GetFsId().GetMountpoint(), at)
	}
	p.root.Store(&at)
}
