package pull

import (
	"cmp"
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FsTeller is a runtime that may report the file system of its images; if it cannot,
// the error is Unimplemented.
type FsTeller interface {
	ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error)
}

// Place is the location of images.
type Place struct {
	runtime FsTeller
	usual   string
	found   atomic.Pointer[string] // nil: the runtime has not answered yet
}

// NewPlace returns a Place at usual until the runtime reports another one.
func NewPlace(runtime FsTeller, usual string) *Place {
	return &Place{runtime: runtime, usual: usual}
}

// Root is a path on the images' file system: the one that the runtime reported, or
// else the default.
func (p *Place) Root() string {
	if found := p.found.Load(); found != nil {
		return *found
	}
	return p.usual
}

// Find asks the runtime until it has answered once, even with Unimplemented.
func (p *Place) Find(ctx context.Context) {
	if p.found.Load() != nil {
		return
	}
	info, err := p.runtime.ImageFsInfo(ctx)
	if err != nil && grpcstatus.Code(err) != codes.Unimplemented {
		return
	}
	at := p.usual
	for _, fs := range info.GetImageFilesystems() {
		at = cmp.Or(fs.GetFsId().GetMountpoint(), at)
	}
	p.found.Store(&at)
}
