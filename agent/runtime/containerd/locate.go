package containerd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/cri"
)

const (
	// Auto makes Locate decide.
	Auto = "auto"
	// Own makes monopod run a Child, even if the host's containerd is ready.
	Own = "own"
	// hostSocket is the socket of the host's containerd.
	hostSocket = "/run/containerd/containerd.sock"
	// probeTimeout is the deadline of a call that checks whether a containerd answers.
	probeTimeout = 2 * time.Second
)

// Locate returns the socket to use for --containerd=want, or true if a Child of the data folder must run. For "auto" it
// chooses, in this order:
//
//  1. a child, if there has been one, because the pods are there;
//  2. the host's containerd, if its CRI and its pod network are ready;
//  3. a child.
func Locate(ctx context.Context, dataDir, want string) (socket string, child bool) {
	if want == Own {
		return "", true
	}
	if want != "" && want != Auto {
		return strings.TrimPrefix(want, "unix://"), false
	}
	return decide(hadChild(dataDir), func() bool { return usable(ctx, hostSocket) })
}

func decide(hadChild bool, hostUsable func() bool) (socket string, child bool) {
	if hadChild || !hostUsable() {
		return "", true
	}
	return hostSocket, false
}

func hadChild(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, "containerd", "root"))
	return err == nil
}

// usable reports whether the containerd at socket can run pods.
func usable(ctx context.Context, socket string) bool {
	if _, err := os.Stat(socket); err != nil {
		return false
	}
	conn, err := cri.Dial(socket)
	if err != nil {
		return false
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	resp, err := api.NewRuntimeServiceClient(conn).Status(ctx, &api.StatusRequest{})
	return err == nil && cri.Condition(resp.Status, api.RuntimeReady) && cri.Condition(resp.Status, api.NetworkReady)
}
