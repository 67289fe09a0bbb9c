// Package status reports the state of a running monopod: its process, address, nodes, pods, disk, database, snapshots
// and certificates, and what needs attention. Collect reads the facts, Of makes the Report.
package status

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/local"
)

// Path is the API server's path of its Process, for admins.
const Path = "/monopod/status"

// LogPath is the API server's path of the last lines of its log, for admins.
const LogPath = "/monopod/log"

// Process describes the process of a server.
type Process struct {
	Version    string    `json:"version"`
	Kubernetes string    `json:"kubernetes"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	Address    string    `json:"address"`            // for clients on its machine, as a URL
	External   string    `json:"external,omitempty"` // for clients on other machines; empty: they cannot reach it
	DataDir    string    `json:"dataDir"`
	Node       string    `json:"node"`
	Runtime    string    `json:"runtime"` // --runtime
	Disk       *Disk     `json:"disk,omitempty"`
	State      State     `json:"state"`
}

// Disk is the file system of the data folder, in bytes.
type Disk struct {
	Free  uint64 `json:"free"` // for processes without root
	Total uint64 `json:"total"`
}

// State is the database.
type State struct {
	Kind      string     `json:"kind"`            // "file" or "etcd"
	Bytes     int64      `json:"bytes,omitempty"` // 0: not known
	Snapshot  *Snapshot  `json:"lastSnapshot,omitempty"`
	Snapshots []Snapshot `json:"snapshots,omitempty"` // the newest first
}

// Snapshot is a copy of the state.
type Snapshot struct {
	Name  string    `json:"name"`
	Time  time.Time `json:"time"`
	Bytes int64     `json:"bytes"`
}

// Facts contains what a Report is made of.
type Facts struct {
	Process      Process
	Health       string // the text of /readyz?verbose
	Nodes        []corev1.Node
	Pods         []corev1.Pod
	Certificates []auth.Certificate
	Now          time.Time
}

// Collect reads the facts from a server. It returns the first error.
func Collect(ctx context.Context, server *local.Server, now time.Time) (f Facts, err error) {
	f.Now = now
	var nodes corev1.NodeList
	var pods corev1.PodList
	for _, q := range []struct {
		path string
		into any
	}{{Path, &f.Process}, {auth.CertificatesPath, &f.Certificates}, {"/api/v1/nodes", &nodes}, {"/api/v1/pods", &pods}} {
		if err := server.JSON(ctx, q.path, q.into); err != nil {
			return f, err
		}
	}
	f.Nodes, f.Pods = nodes.Items, pods.Items
	f.Health, err = health(ctx, server)
	return f, err
}

// health returns the text of /readyz?verbose, whether it passes or fails.
func health(ctx context.Context, server *local.Server) (string, error) {
	text, err := server.Read(ctx, "/readyz?verbose")
	if err == nil {
		return string(text), nil
	}
	if strings.Contains(err.Error(), "readyz check failed") {
		return err.Error(), nil
	}
	return "", err
}
