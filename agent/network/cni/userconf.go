package cni

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
)

const (
	// confName sorts after other names: containerd uses the first file, so that the user's configuration takes precedence.
	confName = "zz-monopod.conflist"
	// oldConfName is the name in earlier versions.
	oldConfName = "10-monopod.conflist"
)

// The folders of a network of the administrator, which the manifests of networks name.
const (
	adminConfDir = "/etc/cni/net.d"
	adminBinDir  = "/opt/cni/bin"
)

// pluginDirs are the folders in which distributions and Kubernetes' packages install plugins.
var pluginDirs = []string{adminBinDir, "/usr/lib/cni"}

// Foreign returns the name of the user's file in ConfDir that containerd uses instead of ours; empty: there is none.
func (n Network) Foreign() string {
	entries, _ := os.ReadDir(n.ConfDir()) // sorted; an absent folder is empty
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
			if e.Name() == confName {
				return ""
			}
			return e.Name()
		}
	}
	return ""
}

// IsOwn reports whether pods have Monopod's own network.
func (n Network) IsOwn() bool { return !n.Admin && n.Foreign() == "" }

// linkPlugins links the machine's plugins into BinDir, except those with the name of an own plugin. It removes links to
// plugins that no longer exist.
func (n Network) linkPlugins(dirs []string) error {
	entries, err := os.ReadDir(n.BinDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(n.BinDir(), e.Name())
		if target, err := os.Readlink(name); err == nil && slices.Contains(dirs, filepath.Dir(target)) {
			if _, err := os.Stat(target); os.IsNotExist(err) {
				if err := os.Remove(name); err != nil {
					return err
				}
			}
		}
	}
	for _, dir := range dirs {
		programs, _ := os.ReadDir(dir) // an absent folder is empty
		for _, e := range programs {
			name := filepath.Join(n.BinDir(), e.Name())
			if _, err := os.Lstat(name); os.IsNotExist(err) && !e.IsDir() {
				if err := os.Symlink(filepath.Join(dir, e.Name()), name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Holds reports whether an address belongs to a pod of this machine: it is in a subnet of the Network, or with the
// user's network it is reached without a gateway through a link other than that of a default route.
func (n Network) Holds(ip netip.Addr) bool {
	if slices.ContainsFunc(n.Subnets, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return true
	}
	if n.IsOwn() {
		return false
	}
	routes, err := netlink.RouteGet(net.IP(ip.AsSlice()))
	if err != nil || len(routes) == 0 || routes[0].Gw != nil || routes[0].Via != nil {
		return false
	}
	uplinks, err := uplinks()
	return err == nil && !slices.Contains(uplinks, routes[0].LinkIndex)
}
