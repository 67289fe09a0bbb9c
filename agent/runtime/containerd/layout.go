package containerd

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// maxSocketPath is the longest path that containerd listens on, which is shorter than
// sun_path of unix(7), with room for the ".ttrpc" that containerd adds.
const maxSocketPath = 104 - len(".ttrpc")

// layout contains the paths of a child containerd. All are below the data folder, except the socket if its path would
// be too long.
type layout struct {
	id     string // of the instance
	dir    string // <data-dir>/containerd
	root   string
	state  string
	socket string
	config string
	pid    string
	boot   string // file with the ID of the boot during which state was created
	hosts  string // folder of registry mirrors: containerd's hosts.toml
	cni    string
	cdi    string // the user's CDI specs of this node
	oci    string // wrappers of runc and the shim that earlier versions of monopod installed
}

// newLayout returns the paths for a data folder, which must be absolute.
func newLayout(dataDir string) layout {
	dir := filepath.Join(dataDir, "containerd")
	id := InstanceID(dataDir)
	l := layout{
		id: id, dir: dir, cni: filepath.Join(dataDir, "cni"), cdi: filepath.Join(dataDir, "cdi"),
		oci: filepath.Join(dir, "oci"), root: filepath.Join(dir, "root"), state: filepath.Join(dir, "state"),
		socket: filepath.Join(dir, "containerd.sock"), config: filepath.Join(dir, "config.toml"),
		pid: filepath.Join(dir, "containerd.pid"), boot: filepath.Join(dir, "boot"), hosts: filepath.Join(dir, "certs.d"),
	}
	if len(l.socket) > maxSocketPath {
		l.socket = filepath.Join("/run/monopod", id, "containerd.sock")
	}
	return l
}

// InstanceID identifies the instance of a data folder in the names of links, nftables
// tables and cgroups. It is eight hexadecimal digits, derived from the absolute path.
func InstanceID(dataDir string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(dataDir)))
	return hex.EncodeToString(sum[:4])
}

// CgroupRoot returns the parent of the cgroups of an instance's pods. Each data
// folder has its own, because several instances may share the machine.
func CgroupRoot(dataDir string) string { return "/monopod-" + InstanceID(dataDir) }
