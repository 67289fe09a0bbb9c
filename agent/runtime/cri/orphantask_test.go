package cri_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
)

// orphanTask creates a task for a container without CRI, like a containerd that is killed during a start, and returns
// its process ID.
func (n *node) orphanTask(id string, started bool) (pid int) {
	n.t.Helper()
	ctx, c := n.container(id)
	task, err := c.NewTask(ctx, cio.NullIO)
	if err == nil && started {
		err = task.Start(ctx)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return int(task.Pid())
}

// container returns a container or sandbox of containerd's client, and the context for its methods.
func (n *node) container(id string) (context.Context, containerd.Container) {
	n.t.Helper()
	ctx := namespaces.WithNamespace(n.t.Context(), "k8s.io")
	client, err := containerd.New(n.child.Socket(), containerd.WithTimeout(time.Minute))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { client.Close() })
	c, err := client.LoadContainer(ctx, id)
	if err != nil {
		n.t.Fatal(err)
	}
	return ctx, c
}

// An orphan task prevents the start of its container, with an error that names the task. It is killed with the
// container, which can then be recreated, or with the pod.
func TestOrphanTasksEnd(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importSample()
	for name, started := range map[string]bool{"created": false, "started": true} {
		t.Run(name, func(t *testing.T) {
			ctx, config := t.Context(), n.sandboxConfig(name)
			sandbox, err := n.runtime.RunPodSandbox(ctx, config, "")
			if err != nil {
				t.Fatal(err)
			}
			spoil := func() (id string, pid int) {
				t.Helper()
				id, err := n.runtime.CreateContainer(ctx, sandbox, webConfig(), config)
				if err != nil {
					t.Fatal(err)
				}
				pid = n.orphanTask(id, started)
				if err := n.runtime.StartContainer(ctx, id); !runtime.Exists(err) {
					t.Errorf("start: %v", err)
				}
				return id, pid
			}
			id, pid := spoil()
			s, err := n.runtime.ContainerStatus(ctx, id)
			if err != nil || s.State != api.ContainerState_CONTAINER_EXITED || s.StartedAt != 0 || s.Reason != "StartError" ||
				!runtime.Recorded(s.Message) {
				t.Errorf("status: %v %v", s, err)
			}
			if err := n.runtime.RemoveContainer(ctx, id); err != nil {
				t.Errorf("remove: %v", err)
			}
			checkEnded(t, pid)
			id, err = n.runtime.CreateContainer(ctx, sandbox, webConfig(), config)
			if err == nil {
				err = n.runtime.StartContainer(ctx, id)
			}
			if err != nil || !n.running(id) {
				t.Errorf("recreated container: %v", err)
			}
			if err := n.runtime.RemoveContainer(ctx, id); err != nil {
				t.Error(err)
			}
			_, pid = spoil()
			if err := n.runtime.StopPodSandbox(ctx, sandbox); err != nil {
				t.Error(err)
			}
			if err := n.runtime.RemovePodSandbox(ctx, sandbox); err != nil {
				t.Errorf("remove pod: %v", err)
			}
			checkEnded(t, pid)
		})
	}
}

func checkEnded(t *testing.T, pid int) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); err == nil {
		t.Errorf("process %d still runs", pid)
	}
}
