package machine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/google/nftables"
	"github.com/prometheus/procfs"

	"monopod/agent/runtime/containerd"
	"monopod/testdata/harness"
)

// inventory lists, by kind, the names of all resources that a monopod has on this machine for its pods.
type inventory map[string][]string

// take takes an inventory. It fails the test if a kind cannot be listed.
func (s *server) take(t testing.TB) inventory {
	t.Helper()
	inv := inventory{}
	errs := []error{s.takeRuntime(inv), s.takeProcesses(inv), s.takeMounts(inv), s.takePorts(inv)}
	id := containerd.InstanceID(s.Dir)
	for kind, pattern := range map[string]string{
		"cgroup":             "/sys/fs/cgroup/*/monopod-" + id + "/kubepods*/*pod*",
		"cgroup of class":    "/sys/fs/cgroup/*/monopod-" + id + "/kubepods*/*/*pod*",
		"cgroup v2":          "/sys/fs/cgroup/monopod-" + id + "/kubepods*/*pod*",
		"cgroup v2 of class": "/sys/fs/cgroup/monopod-" + id + "/kubepods*/*/*pod*",
		"veth":               "/sys/class/net/mp-" + id + "/brif/*",
		"address":            s.Dir + "/cni/ips/*",
		"pod folder":         s.Dir + "/pods/*",
		"log folder":         s.Dir + "/logs/pods/*",
		"log link":           s.Dir + "/logs/containers/*",
		"netns":              s.Dir + "/containerd/state/netns/*",
		"netns of CRI":       s.Dir + "/containerd/state/*/netns/*",
		"sandbox's state":    s.Dir + "/containerd/state/*cri*/sandboxes/*",
		"container's state":  s.Dir + "/containerd/state/*cri*/containers/*",
		"sandbox's root":     s.Dir + "/containerd/root/*cri*/sandboxes/*",
		"container's root":   s.Dir + "/containerd/root/*cri*/containers/*",
		"bundle":             s.Dir + "/containerd/state/io.containerd.runtime.v2.task/k8s.io/*",
		"work folder":        s.Dir + "/containerd/root/io.containerd.runtime.v2.task/k8s.io/*",
	} {
		var err error
		inv[kind], err = filepath.Glob(pattern)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return inv
}

// more returns the names in now that are not in inv.
func (inv inventory) more(now inventory) inventory {
	more := inventory{}
	for kind, list := range now {
		for _, one := range list {
			if !slices.Contains(inv[kind], one) {
				more[kind] = append(more[kind], one)
			}
		}
	}
	return more
}

// socket returns the path of the containerd socket in the data folder.
func (s *server) socket() string { return filepath.Join(s.Dir, "containerd", "containerd.sock") }

// takeRuntime lists containers, leases, snapshots and content from containerd's own API.
func (s *server) takeRuntime(inv inventory) error {
	client, err := client.New(s.socket(), client.WithDefaultNamespace("k8s.io"), client.WithTimeout(harness.Bound))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), "k8s.io"), harness.Bound)
	defer cancel()
	all, err := client.ContainerService().List(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		inv["container"] = append(inv["container"], c.ID)
	}
	leases, err := client.LeasesService().List(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases {
		inv["lease"] = append(inv["lease"], l.ID)
	}
	for _, name := range []string{"overlayfs", "native"} {
		err = errors.Join(err, client.SnapshotService(name).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
			inv["snapshot"] = append(inv["snapshot"], info.Name)
			return nil
		}))
	}
	return errors.Join(err, client.ContentStore().Walk(ctx, func(info content.Info) error {
		inv["content"] = append(inv["content"], info.Digest.String())
		return nil
	}))
}

// takeProcesses lists shims, which have the socket in their arguments, and processes in the pods' cgroups.
func (s *server) takeProcesses(inv inventory) error {
	procs, err := procfs.AllProcs()
	if err != nil {
		return err
	}
	root := "/monopod-" + containerd.InstanceID(s.Dir) + "/"
	for _, p := range procs {
		args, err := p.CmdLine()
		if err != nil || len(args) == 0 { // the process has ended
			continue
		}
		groups, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "cgroup"))
		if slices.Contains(args, s.socket()) || bytes.Contains(groups, []byte(root)) {
			inv["process"] = append(inv["process"], fmt.Sprintf("%d %s", p.PID, strings.Join(args, " ")))
		}
	}
	return nil
}

func (s *server) takeMounts(inv inventory) error {
	mounts, err := procfs.GetMounts()
	shared := []string{filepath.Join(s.Dir, "pods"), filepath.Join(s.Dir, "plugins")} // monopod mounts these while it runs
	for _, m := range mounts {
		if strings.HasPrefix(m.MountPoint, s.Dir+"/") && !slices.Contains(shared, m.MountPoint) {
			inv["mount"] = append(inv["mount"], m.MountPoint)
		}
	}
	return err
}

// takePorts lists the host ports in nftables, and all rules.
func (s *server) takePorts(inv inventory) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyIPv4)
	i := slices.IndexFunc(tables,
		func(t *nftables.Table) bool { return t.Name == "monopod-"+containerd.InstanceID(s.Dir) })
	if err != nil || i < 0 {
		return err
	}
	table := tables[i]
	ports, err := conn.GetSetByName(table, "hostports")
	if err != nil {
		return err
	}
	elements, err := conn.GetSetElements(ports)
	for _, e := range elements {
		inv["host port"] = append(inv["host port"], fmt.Sprintf("%x", e.Key))
	}
	chains, err2 := conn.ListChainsOfTableFamily(table.Family)
	for _, chain := range chains {
		if chain.Table.Name == table.Name {
			rules, err := conn.GetRules(table, chain)
			err2 = errors.Join(err2, err)
			for i := range rules {
				inv["rule"] = append(inv["rule"], fmt.Sprintf("%s %d", chain.Name, i))
			}
		}
	}
	return errors.Join(err, err2)
}

// shimSocket returns the path of a shim's socket in containerd 1.6, which is outside of the data folder.
func (s *server) shimSocket(sandbox string) string {
	sum := sha256.Sum256([]byte(filepath.Join(s.socket(), "k8s.io", sandbox)))
	return filepath.Join("/run/containerd/s", fmt.Sprintf("%x", sum))
}
