// Package status is the state of a monopod at a glance: its process, address, nodes, pods, disk, database, snapshots,
// certificates, and what needs attention. Collect reads the facts, Of judges them.
package status

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/local"
)

// Path is where a server answers with its Process, for admins.
const Path = "/monopod/status"

// LogPath is where a server answers with the last lines of its log, for admins.
const LogPath = "/monopod/log"

// Process is what a server says of itself.
type Process struct {
	Version    string    `json:"version"`
	Kubernetes string    `json:"kubernetes"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	Address    string    `json:"address"` // for clients on its machine, as a URL
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

// Facts is all that a status is made of.
type Facts struct {
	Process      Process
	Health       string // the text of /readyz?verbose
	Nodes        []corev1.Node
	Pods         []corev1.Pod
	Certificates []auth.Certificate
	Now          time.Time
}

// Collect asks a server. Every error is one of the connection or of rights, and the first is returned.
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
