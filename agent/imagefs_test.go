package agent

import (
	"context"
	"errors"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/eviction"
	"monopod/agent/host"
)

// whereImagesLie is a runtime that knows just that.
type whereImagesLie struct {
	Runtime
	info *cri.ImageFsInfoResponse
}

func (r *whereImagesLie) ImageFsInfo(context.Context) (*cri.ImageFsInfoResponse, error) {
	if r.info == nil {
		return nil, errors.New("not yet")
	}
	return r.info, nil
}

func TestSignalsOfImagesAreOfTheirFileSystem(t *testing.T) {
	t.Parallel()
	r := &whereImagesLie{}
	a := &Agent{Deps: Deps{Runtime: r}, cfg: Config{DataDir: t.TempDir(), ImageRoot: t.TempDir()}}
	a.findImages(t.Context())
	if got := a.imageRoot(); got != a.cfg.ImageRoot {
		t.Errorf("before the runtime says where: %s", got)
	}
	const other = "/dev/shm" // a file system of its own on every Linux
	r.info = &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{FsId: &cri.FilesystemIdentifier{Mountpoint: other}}}}
	a.findImages(t.Context())
	r.info.ImageFilesystems[0].FsId = nil // an answer counts, once there is one
	a.findImages(t.Context())
	disk, err := host.Disk(other)
	if err != nil || disk.Total == 0 {
		t.Skipf("no %s here: %v", other, err)
	}
	if got := a.machine()[eviction.ImageFs]; got.Total != disk.Total {
		t.Errorf("the file system of images has %d bytes, want %d", got.Total, disk.Total)
	}
}
