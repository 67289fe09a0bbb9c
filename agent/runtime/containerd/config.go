package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni"
	"monopod/agent/runtime/cri"
	"monopod/agent/runtime/oci"
)

// configFile is the content of the child's config.toml.
type configFile struct {
	Major           int // version of containerd
	Root, State     string
	Socket          string
	Snapshotter     string
	SandboxImage    string
	BinDirs         []string // containerd 1 uses only the last one
	ConfDir         string
	Hosts           string
	CDI             string // folder of the node's own CDI specs
	RestrictOOM     bool   // without CAP_SYS_RESOURCE, oom_score_adj cannot be lowered
	DisableAppArmor bool
	Shim            string       // absolute path; empty: containerd looks for it
	Runtimes        []ociRuntime // the default one first
	Systemd         bool         // the systemd cgroup driver
	NoPivot         bool         // the root of the machine is an initramfs, which cannot be replaced with pivot_root
}

// configs are the templates: version 2 for containerd 1.6 and 1.7 (false), version 3 for 2.x (true). By default 2.x
// samples the usage of every container each second (stats_collect_period); the agent reads usage only on request.
var configs = map[bool]string{false: `version = 2
root = ${root}
state = ${state}
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
` + commonConfig + `
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = ${sandboxImage}
  restrict_oom_score_adj = ${restrictOOM}
  disable_apparmor = ${disableAppArmor}
  disable_hugetlb_controller = false
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = ${snapshotter}${runtimes}
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = ${hosts}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = ${binDir}
    conf_dir = ${confDir}
`, true: `version = 3
root = ${root}
state = ${state}
imports = []
disabled_plugins = [
  "io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp"]
` + commonConfig + `
[plugins."io.containerd.cri.v1.images"]
  snapshotter = ${snapshotter}
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = ${sandboxImage}
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = ${hosts}
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = ${restrictOOM}
  disable_apparmor = ${disableAppArmor}
  disable_hugetlb_controller = false
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", ${cdi}]
  stats_collect_period = "1h"
  [plugins."io.containerd.cri.v1.runtime".containerd]${runtimes}
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [${binDirs}]
    conf_dir = ${confDir}
    use_internal_loopback = true
`}

// commonConfig is the part that both versions share. Temporary mounts of shims are next to those of containerd, which
// cleans them up at start; by default they would be in /tmp.
const commonConfig = `temp = ${temp}
[grpc]
  address = ${socket}
[debug]
  level = "warn"
[plugins."io.containerd.internal.v1.opt"]
  path = ${opt}`

// render returns the text of the file. It does not use text/template, which calls methods by name and so keeps the
// linker from dropping any exported method of the program.
func (s configFile) render() string {
	quote := strconv.Quote // for paths, TOML's basic strings are the same as Go's
	var binDirs []string
	for _, dir := range s.BinDirs {
		binDirs = append(binDirs, quote(dir))
	}
	values := map[string]string{
		"root": quote(s.Root), "state": quote(s.State), "socket": quote(s.Socket), "snapshotter": quote(s.Snapshotter),
		"sandboxImage": quote(s.SandboxImage), "binDir": binDirs[len(binDirs)-1], "binDirs": strings.Join(binDirs, ", "),
		"confDir": quote(s.ConfDir),
		"hosts":   quote(s.Hosts), "cdi": quote(s.CDI), "temp": quote(s.Root + "/tmpmounts"), "opt": quote(s.Root + "/opt"),
		"restrictOOM":     strconv.FormatBool(s.RestrictOOM),
		"disableAppArmor": strconv.FormatBool(s.DisableAppArmor),
		"runtimes":        s.runtimes(),
	}
	return os.Expand(configs[s.Major >= 2], func(name string) string { return values[name] })
}

// runtimes returns the TOML tables of the OCI runtimes.
func (s configFile) runtimes() string {
	if len(s.Runtimes) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n    default_runtime_name = %q", s.Runtimes[0].name)
	plugin := "io.containerd.grpc.v1.cri"
	if s.Major >= 2 {
		plugin = "io.containerd.cri.v1.runtime"
	}
	for _, r := range s.Runtimes {
		table := fmt.Sprintf("plugins.%q.containerd.runtimes.%q", plugin, r.name)
		fmt.Fprintf(&b, "\n    [%s]\n      runtime_type = \"io.containerd.runc.v2\"", table)
		if s.Major >= 2 && s.Shim != "" {
			fmt.Fprintf(&b, "\n      runtime_path = %q", s.Shim)
		}
		fmt.Fprintf(&b, "\n      [%s.options]\n        BinaryName = %q\n        SystemdCgroup = %t\n        NoPivotRoot = %t",
			table, r.path, s.Systemd, s.NoPivot)
	}
	return b.String()
}

// configFile returns the configuration for this machine and the programs found.
func (c *Child) configFile(found programs, network cni.Network) configFile {
	return configFile{
		Major: found.version.major, Root: c.layout.root, State: c.layout.state, Socket: c.layout.socket,
		Snapshotter: c.snapshotter, SandboxImage: oci.PauseRef,
		BinDirs: network.BinDirs(), ConfDir: network.ConfDir(), Hosts: c.layout.hosts, CDI: c.layout.cdi,
		RestrictOOM: !hasCapability(unix.CAP_SYS_RESOURCE), DisableAppArmor: !hasAppArmor(),
		Runtimes: found.ociRuntimes, Systemd: c.config.Systemd, Shim: found.shim, NoPivot: rootIsInitramfs(),
	}
}

// rootIsInitramfs reports whether the root is the one that the kernel unpacked at boot.
func rootIsInitramfs() bool {
	root, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != "/", false })
	return err == nil && len(root) > 0 && root[len(root)-1].FSType == "rootfs"
}

var versionPattern = regexp.MustCompile(`\sv?(\d+)\.(\d+)\b`)

// programVersion is the version that a program prints.
type programVersion struct{ major, minor int }

// parseVersion reads what `containerd --version` and others print:
//
//	containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3
//	containerd github.com/containerd/containerd/v2 v2.4.2 ...
func parseVersion(out string) (v programVersion, err error) {
	m := versionPattern.FindStringSubmatch(out)
	if m == nil {
		return programVersion{}, fmt.Errorf("no version in %q", out)
	}
	if v.major, err = strconv.Atoi(m[1]); err != nil {
		return programVersion{}, err
	}
	v.minor, err = strconv.Atoi(m[2])
	return v, err
}

func hasAppArmor() bool {
	data, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(data), "Y")
}

// chooseSnapshotter returns overlayfs if a folder below dir can be an overlay's upper
// layer; otherwise native, which copies.
func chooseSnapshotter(dir string) (string, error) {
	err := Overlay(dir)
	if errno := unix.Errno(0); errors.As(err, &errno) && !errors.As(err, new(*os.PathError)) {
		return "native", nil
	}
	return cri.DefaultSnapshotter, err
}

// UserNamespaces returns an error if pods cannot have user namespaces of their own: the kernel must show the files
// below dir, and those of a tmpfs, with other owners (an id-mapped mount).
func UserNamespaces(dir string) error {
	namespace, err := mount.GetUsernsFD("0:65536:65536", "0:65536:65536")
	if err != nil {
		return err
	}
	defer namespace.Close()
	tmp, err := os.MkdirTemp(dir, "idmap")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := idMap(tmp, namespace); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", tmp, "tmpfs", 0, "size=4k"); err != nil {
		return err
	}
	if err := idMap(tmp, namespace); err != nil {
		return errors.Join(fmt.Errorf("tmpfs: %w", err), unix.Unmount(tmp, unix.MNT_DETACH))
	}
	return unix.Unmount(tmp, unix.MNT_DETACH)
}

// idMap makes an id-mapped mount over dir and removes it. An error of the kernel is the bare number.
func idMap(dir string, namespace *os.File) error {
	err := mount.IDMapMount(dir, dir, int(namespace.Fd()))
	if number := unix.Errno(0); errors.As(err, &number) {
		return number
	} else if err != nil {
		return err
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

// Overlay returns an error if no folder below dir can be an overlay's upper layer: a unix.Errno if the kernel refuses
// the mount.
func Overlay(dir string) error {
	tmp, err := os.MkdirTemp(dir, "overlay")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(tmp, name), 0o755); err != nil {
			return err
		}
	}
	merged := filepath.Join(tmp, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", tmp)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return err
	}
	return unix.Unmount(merged, unix.MNT_DETACH)
}
