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

// orphanTask creates the task of a container without CRI, as a containerd leaves it
// that is killed within a start, and returns its process.
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

// container is a container or sandbox as containerd has it, and the context for its methods.
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

// A task that CRI does not know prevents the start of its container, with an error that names it;
// it ends with its container, which is then created and started again, or with the
// pod.
func TestStrayTasksEnd(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importSample()
	for name, started := range map[string]bool{"made": false, "started": true} {
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
				t.Errorf("created again: %v", err)
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
		t.Errorf("process %d runs", pid)
	}
}
