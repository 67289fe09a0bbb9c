package runtimetest

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testStats checks that a runtime with statistics reports the usage of each running container.
func testStats(t *testing.T, env Env) {
	p := newPod(t, env)
	id := p.serve()
	var got []*cri.ContainerStats
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var err error
		got, err = env.Runtime.ListContainerStats(t.Context(), &cri.ContainerStatsFilter{Id: id})
		if status.Code(err) == codes.Unimplemented {
			t.Skip("this runtime has no statistics: " + err.Error())
		}
		if err == nil && len(got) == 1 && got[0].GetCpu().GetUsageCoreNanoSeconds().GetValue() > 0 &&
			got[0].GetMemory().GetWorkingSetBytes().GetValue() > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("stats %v, error %v", got, err)
		}
	}
	if a := got[0].Attributes; a.Id != id || a.Metadata.Name != "main" {
		t.Errorf("the attributes of the container are %v", a)
	}
	images, err := env.Runtime.ImageFsInfo(t.Context())
	if err != nil || len(images.ImageFilesystems) == 0 || images.ImageFilesystems[0].GetFsId().GetMountpoint() == "" {
		t.Errorf("usage of the image file system: %v, error %v", images, err)
	}
}
