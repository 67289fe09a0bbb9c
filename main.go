// Command monopod is a whole Kubernetes in one small process: API server,
// controllers and a node agent over containerd.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/agent/cgroup"
	"monopod/agent/cni"
	"monopod/agent/cpumanager"
	"monopod/agent/cri"
	"monopod/agent/cri/resetcmd"
	"monopod/agent/eviction"
	"monopod/agent/garbage"
	"monopod/agent/image"
	"monopod/agent/logs"
	"monopod/agent/memorymanager"
	"monopod/agent/reserve"
	"monopod/agent/security"
	"monopod/agent/shutdown"
	"monopod/agent/shutdown/draincmd"
	"monopod/agent/spec"
	"monopod/agent/topology"
	"monopod/apiserver"
	"monopod/apiserver/audit"
	"monopod/apiserver/auth/certscmd"
	"monopod/apiserver/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/allocate"
	"monopod/controllers"
	"monopod/store"
	"monopod/store/bolt/snapshotcmd"
	"monopod/store/storecmd"
)

func main() {
	if cni.Invoked(os.Args[0]) { // containerd runs this very program for each sandbox
		os.Exit(cni.Main(os.Args[0]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "monopod:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "monopod",
		Short:         "A whole Kubernetes in one small process",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       apiserver.Version.GitVersion,
	}
	root.AddCommand(serveCommand(), resetcmd.New(defaultDataDir), storecmd.New(stateConfig), certscmd.New(defaultDataDir), draincmd.New(defaultDataDir), snapshotcmd.New(snapshotcmd.Config{DataDir: defaultDataDir, Store: storeConfig}))
	return root
}

func storeConfig() store.Config {
	return store.Config{Kind: registry.Kinds(registry.Resources())}
}

// stateConfig is storeConfig for what may lie in etcd, where events outlive
// whoever should remove them.
func stateConfig() storecmd.Config {
	resources := registry.Resources()
	cfg := storecmd.Config{
		Config: store.Config{Kind: registry.Kinds(resources)},
		TTL:    map[string]time.Duration{client.Events.Resource: controllers.Default().EventTTL.Duration},
	}
	for _, r := range resources {
		if r.Stored() {
			cfg.Resources = append(cfg.Resources, r.GVR.Resource)
		}
	}
	return cfg
}

const defaultDataDir = "/var/lib/monopod"

// Config is what `monopod serve` is told. Every part reads its own share.
type Config struct {
	DataDir    string
	Listen     string
	Containerd string
	Runtime    string
	NodeName   string
	LogLevel   string

	ServiceAddresses string
	ServicePorts     string

	services allocate.Config // of the two above, by complete

	State            storecmd.Place
	SnapshotInterval time.Duration

	Limits      apiserver.Limits
	Audit       audit.Options
	Controllers controllers.Config

	Eviction  eviction.Options
	evictions eviction.Policy // of Eviction, by complete

	Garbage garbage.Policy
	Logs    logs.Rotation
	Pulls   image.Limits
	Cluster spec.Cluster
	MaxPods int
	Reserve reserve.Config
	Cgroups cgroup.Options

	Security security.Policy
	CPUs     cpumanager.Config
	Memory   memorymanager.Config
	Topology topology.Config

	Shutdown shutdown.Periods
}

func serveCommand() *cobra.Command {
	cfg := Config{Controllers: controllers.Default()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the API server, the controllers and the node agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.complete(); err != nil {
				return err
			}
			return run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.DataDir, "data-dir", defaultDataDir, "the only folder written to")
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:6443", "address for HTTPS; port 0 picks one, admin.kubeconfig names it")
	f.StringVar(&cfg.Containerd, "containerd", cri.Auto, "containerd's socket; auto: the one that runs, else one of our own is started")
	f.StringVar(&cfg.Runtime, "runtime", "containerd", "containerd, or fake: pods run in memory")
	f.StringVar(&cfg.NodeName, "node-name", "", "name of the node; empty: the hostname")
	f.StringVar(&cfg.LogLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&cfg.ServiceAddresses, "service-cluster-ip-range", allocate.DefaultAddresses, "where Services get their addresses from: one range, or one of IPv4 and one of IPv6 parted by a comma")
	f.StringVar(&cfg.ServicePorts, "service-node-port-range", allocate.DefaultPorts, "where Services get their ports of the node from")
	cfg.State.Flags(f)
	cfg.Limits.Flags(f)
	cfg.Audit.Flags(f)
	cfg.Garbage.Flags(f)
	cfg.Logs.Flags(f)
	cfg.Eviction.Flags(f)
	cfg.Pulls.Flags(f)
	cfg.Cluster.Flags(f)
	f.IntVar(&cfg.MaxPods, "max-pods", 110, "pods that the node runs at most")
	cfg.Reserve.Flags(f)
	cfg.Cgroups.Flags(f)
	cfg.Security.Flags(f)
	cfg.CPUs.Flags(f)
	cfg.Memory.Flags(f)
	cfg.Topology.Flags(f)
	cfg.Shutdown.Flags(f)
	f.DurationVar(&cfg.SnapshotInterval, "snapshot-interval", 24*time.Hour, "time between snapshots of a state that changes; 0: none by itself")
	f.StringSliceVar(&cfg.Controllers.Controllers, "controllers", cfg.Controllers.Controllers, "controllers to run: * all that are on by default, foo on, -foo off")
	f.IntVar(&cfg.Controllers.TerminatedPodGCThreshold, "terminated-pod-gc-threshold", cfg.Controllers.TerminatedPodGCThreshold, "terminated pods that may exist before the oldest are deleted; 0: never delete")
	f.IntVar(&cfg.Controllers.ConcurrentReplicaSetSyncs, "concurrent-replicaset-syncs", cfg.Controllers.ConcurrentReplicaSetSyncs, "ReplicaSets worked on at a time")
	return cmd
}

// complete checks what the flags say and fills in what they leave out.
func (c *Config) complete() error {
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--node-name: cannot take the hostname: %w", err)
		}
		c.NodeName = strings.ToLower(host)
	}
	if problems := validation.IsDNS1123Subdomain(c.NodeName); len(problems) > 0 {
		return fmt.Errorf("--node-name: %q: %s", c.NodeName, strings.Join(problems, "; "))
	}
	if c.Runtime != "containerd" && c.Runtime != "fake" {
		return fmt.Errorf("--runtime: %q is neither containerd nor fake", c.Runtime)
	}
	if c.MaxPods < 1 {
		return fmt.Errorf("--max-pods: %d is no number of pods", c.MaxPods)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	c.DataDir, c.State.DataDir = dir, dir
	c.services, err = allocate.Parse(c.ServiceAddresses, c.ServicePorts)
	var evictions error
	c.evictions, evictions = c.Eviction.Policy()
	return errors.Join(err, c.Garbage.Check(), c.Logs.Check(), c.Pulls.Check(), c.Cluster.Check(), c.Reserve.Check(), c.Cgroups.Check(), c.Security.Check(), c.CPUs.Check(c.Topology.Policy), c.Memory.Check(), c.Topology.Check(), c.Shutdown.CheckServe(), evictions)
}

func (c Config) path(name ...string) string {
	return filepath.Join(append([]string{c.DataDir}, name...)...)
}
