package setup

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"monopod/apiserver"
	"monopod/apiserver/status"
)

// About describes the process. The caller sets the fields about other parts than the API server.
func (a *API) About(ctx context.Context) status.Process {
	p := status.Process{
		Kubernetes: apiserver.Version.GitVersion, PID: os.Getpid(), Address: "https://" + a.Access.Reachable(),
		DataDir: a.cfg.DataDir, Node: a.cfg.Node, State: status.State{Kind: "file"},
	}
	if external := a.Access.External(); external != "" {
		p.External = "https://" + external
	}
	if a.State.Shared() {
		p.State.Kind = "etcd"
	}
	if size, err := a.State.Size(ctx); err == nil {
		p.State.Bytes = size
	}
	for _, s := range a.State.Snapshots() {
		p.State.Snapshots = append(p.State.Snapshots, status.Snapshot{Name: s.Name, Time: s.Time, Bytes: s.Size})
	}
	if len(p.State.Snapshots) > 0 {
		p.State.Snapshot = &p.State.Snapshots[0]
	}
	var fs unix.Statfs_t
	if unix.Statfs(a.cfg.DataDir, &fs) == nil {
		p.Disk = &status.Disk{Free: fs.Bavail * uint64(fs.Bsize), Total: fs.Blocks * uint64(fs.Bsize)}
	}
	return p
}
