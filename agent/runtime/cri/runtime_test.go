package cri_test

import (
	"os"
	"os/exec"
	"path/filepath"
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

// ociRuntime is the environment variable with the --oci-runtime of all nodes.
const ociRuntime = "TEST_OCI_RUNTIME"

// TestRuntimeWithCrun runs TestRuntime with crun, in a new mount namespace in which cgroup v2 has no controllers: crun
// does not start containers if cgroup v2 has controllers next to cgroup v1. The test is not parallel, because its
// namespace keeps the mounts of other tests that exist at its start.
func TestRuntimeWithCrun(t *testing.T) {
	needContainerd(t)
	if _, err := exec.LookPath("crun"); err != nil {
		t.Skip("skipped: needs crun in PATH")
	}
	none := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(none, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const script = `controllers=/sys/fs/cgroup/unified/cgroup.controllers
		[ ! -e $controllers ] || mount --bind "$1" $controllers || exit
		! runc=$(command -v runc) || mount --bind /bin/false "$runc" || exit # only the handlers of the case left out need it
		exec "$2" -test.run "^TestRuntime$" -test.skip "^TestRuntime$/^SandboxHandlers$" -test.timeout 60m`
	cmd := exec.Command("unshare", "--mount", "--propagation=slave", "sh", "-c", script, "sh", none, os.Args[0])
	cmd.Env = append(os.Environ(), ociRuntime+"=crun")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
