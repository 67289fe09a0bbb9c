package pull_test

import (
	"context"
	"errors"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/images/pull"
)

// whereImagesLie is a runtime that reports the image file system.
type whereImagesLie struct {
	info *cri.ImageFsInfoResponse
}

func (r *whereImagesLie) ImageFsInfo(context.Context) (*cri.ImageFsInfoResponse, error) {
	if r.info == nil {
		return nil, errors.New("not yet")
	}
	return r.info, nil
}

func TestImageFileSystemOfRuntime(t *testing.T) {
	t.Parallel()
	r := &whereImagesLie{}
	p := pull.NewPlace(r, "/usual")
	p.Find(t.Context())
	if got := p.Root(); got != "/usual" {
		t.Errorf("root before the runtime reports it: %s", got)
	}
	r.info = &cri.ImageFsInfoResponse{
		ImageFilesystems: []*cri.FilesystemUsage{{FsId: &cri.FilesystemIdentifier{Mountpoint: "/other"}}},
	}
	p.Find(t.Context())
	r.info.ImageFilesystems[0].FsId = nil // Find uses only the first response
	p.Find(t.Context())
	if got := p.Root(); got != "/other" {
		t.Errorf("root is %s, want /other", got)
	}
}
