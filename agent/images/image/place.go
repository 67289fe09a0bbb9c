package image

import (
	"cmp"
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FsTeller is a runtime that may know where its images lie; Unimplemented: it does
// not.
type FsTeller interface {
	ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error)
}

// Place is where images lie.
type Place struct {
	runtime FsTeller
	usual   string
	found   atomic.Pointer[string] // nil: the runtime has not said yet
}

// NewPlace is on the file system of usual, unless the runtime says otherwise.
func NewPlace(runtime FsTeller, usual string) *Place {
	return &Place{runtime: runtime, usual: usual}
}

// Root is on the file system that images lie on: where the runtime says, once it has
// been asked, else where it probably is.
func (p *Place) Root() string {
	if found := p.found.Load(); found != nil {
		return *found
	}
	return p.usual
}

// Find asks the runtime, until it has answered once, be it that it does not know.
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
