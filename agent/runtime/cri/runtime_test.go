package cri_test

import (
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/containerd"
	"monopod/agent/runtime/runtimetest"
	"monopod/testdata/web/image"
)

func TestRuntime(t *testing.T) {
	runtimetest.Run(t, func(t *testing.T) runtimetest.Env {
		n := startNode(t)
		n.importSample()
		parent := "/monopod-" + containerd.InstanceID(n.dataDir)
		return runtimetest.Env{
			Runtime: n.runtime, Image: image.Name, LogDir: t.TempDir(),
			Adjust: func(c *api.PodSandboxConfig) { c.Linux.CgroupParent = parent },
		}
	})
}
