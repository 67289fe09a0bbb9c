// Package cni is Monopod's own CNI plugin and its network: one bridge, one subnet of each IP family and up to three
// nftables tables for each data folder.
//
// containerd runs the plugin for each sandbox. The plugin is a stub, a program of 2 KB that sends the call to the
// server in the monopod process. If the server does not answer, the stub executes the monopod program, of which the
// plugin is a mode (see Invoked), so that pods can start and stop while monopod does not run. Both execute the same
// code. ADD allocates addresses, creates a veth pair with one end in the pod's namespace, limits its bandwidth, and
// sets addresses and default routes there. DEL releases the addresses; the veth pair is removed with the namespace.
//
// Files, all below the folder Dir:
//
//	network.json             bridge, subnets and table, chosen once
//	net.d/zz-monopod.conflist
//	bin/monopod-cni, bin/loopback   the stub; links to the monopod program where it cannot run
//	plugin/socket, plugin/monopod   what the stub uses: the server, the monopod program
//	calls                           a lock for each container while a call for it runs
//	lock, last, last-ipv6, ips/<address>    the container that holds each address
//
// Source files:
//
//   - call.go, server.go, stub.go: one call of the plugin, by containerd or through the server
//   - admission.go: delays the addresses of a pod until its NetworkPolicies apply
//   - bandwidth.go: limits the bandwidth of a pod, on the host's end of its link: token buckets delay packets
//   - repair.go: restores rules that another program has removed
//   - userconf.go: CNI configurations and plugins that an administrator installed
package cni

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/cni/rules"
)

const (
	// pluginName is the plugin's name in bin_dir and in the conflist.
	pluginName = "monopod-cni"
	// loopbackName is a plugin that containerd 1.6 runs for every sandbox.
	loopbackName = "loopback"
	// cniVersion is the newest version that containerd 1.6 supports. With 1.1.0 and later, containerd 2.x would also run
	// the plugin for STATUS.
	cniVersion = "1.0.0"
)

// Network is one instance's pod network.
type Network struct {
	Bridge string `json:"bridge"` // at most 15 bytes
	// Subnets are one or two, of different IP families; the bridge has the first address of each. A pod has an address in
	// each, in this order.
	Subnets []netip.Prefix `json:"subnets"`
	Table   string         `json:"table"` // in nftables, families ip, ip6 and inet
	Dir     string         `json:"dir"`   // <data-dir>/cni, absolute
	// Services are the ranges of Services that contain no addresses of pods.
	Services []netip.Prefix `json:"services,omitempty"`
	// Admin makes pods have the network of the administrator's CNI configuration, and none before there is one.
	Admin bool `json:"admin,omitempty"`
}

// Gateways are the bridge's addresses, one in each subnet.
func (n Network) Gateways() []netip.Addr {
	var out []netip.Addr
	for _, subnet := range n.Subnets {
		out = append(out, ipam.Gateway(subnet))
	}
	return out
}

// pool allocates the addresses of the network's pods.
func (n Network) pool() ipam.Pool { return ipam.Pool{Dir: n.Dir, Subnets: n.Subnets} }

// ConnectedPods returns the pods whose sandboxes exist, including those whose statuses are not written yet.
func (n Network) ConnectedPods() ([]ipam.Connected, error) { return n.pool().ConnectedPods() }

// Reclaim releases every leaked address and removes its host ports.
func (n Network) Reclaim() error { return n.pool().Reclaim(n.rules().RemovePorts) }

// release releases the addresses of a container and removes their host ports.
func (n Network) release(container, ifname string) error {
	return n.pool().Release(container, ifname, func(ip netip.Addr) error {
		return n.rules().RemovePorts(func(other netip.Addr) bool { return other == ip })
	})
}

func (n Network) rules() rules.Rules {
	return rules.Rules{Table: n.Table, Bridge: n.Bridge, Subnets: n.Subnets, Services: n.Services}
}

// ServiceTable is the name of the nftables tables of package service, families ip and ip6.
func (n Network) ServiceTable() string { return n.Table + "-services" }

// PolicyTable is the name of the nftables tables of package policy, families ip and ip6.
func (n Network) PolicyTable() string { return n.Table + "-policy" }

// ConfDir contains the conflist: containerd's conf_dir.
func (n Network) ConfDir() string {
	if n.Admin {
		return adminConfDir
	}
	return filepath.Join(n.Dir, "net.d")
}

// BinDirs are containerd's bin_dirs.
func (n Network) BinDirs() []string {
	if n.Admin {
		return []string{n.BinDir(), adminBinDir}
	}
	return []string{n.BinDir()}
}

// BinDir contains Monopod's plugins, and links to those of the machine.
func (n Network) BinDir() string { return filepath.Join(n.Dir, "bin") }

// pluginConf is the plugin's entry in the conflist, as libcni passes it.
type pluginConf struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	Name       string `json:"name,omitempty"`
	Type       string `json:"type"`
	Network
	Capabilities  map[string]bool `json:"capabilities,omitempty"`
	RuntimeConfig struct {
		PortMappings []rules.Port `json:"portMappings,omitempty"`
		Bandwidth    Bandwidth    `json:"bandwidth,omitzero"`
	} `json:"runtimeConfig,omitzero"`
}

// check returns an error unless the configuration is complete.
func (n pluginConf) check() error {
	if n.Bridge == "" || n.Dir == "" || len(n.Subnets) == 0 {
		return errors.New("network configuration lacks bridge, subnets or dir")
	}
	return nil
}

// conflist returns the file that containerd reads from ConfDir.
func (n Network) conflist() ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"cniVersion": cniVersion,
		"name":       "monopod",
		"plugins": []pluginConf{{
			Type: pluginName, Network: n, Capabilities: map[string]bool{"portMappings": true, "bandwidth": true},
		}},
	}, "", "  ")
}

// writeFiles writes the conflist and the plugins unless they exist.
func (n Network) writeFiles(executable string) error {
	for _, dir := range []string{n.ConfDir(), n.BinDir(), n.pool().Folder()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := n.writePlugins(executable); err != nil {
		return err
	}
	conflist, err := n.conflist()
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(n.ConfDir(), oldConfName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := n.linkPlugins(pluginDirs); err != nil {
		return err
	}
	if n.Admin {
		return nil
	}
	return writeFile(filepath.Join(n.ConfDir(), confName), conflist)
}

// Link makes name a symbolic link to target, and replaces any file of the name.
func Link(target, name string) error {
	if old, err := os.Readlink(name); err == nil && old == target {
		return nil
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, name)
}

// writeFile replaces the file atomically, if it differs.
func writeFile(name string, data []byte) error {
	if old, err := os.ReadFile(name); err == nil && string(old) == string(data) {
		return nil
	}
	tmp := name + ".tmp"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}
