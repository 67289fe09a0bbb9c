package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/clock"

	"monopod/agent"
	"monopod/agent/cmd/commandline"
	"monopod/agent/host"
	"monopod/agent/join"
	"monopod/agent/offline"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/memory"
	notify "monopod/apiserver/kit/systemd"
	"monopod/apiserver/setup"
	"monopod/store/bolt"
	"monopod/store/datadir"
)

// joinOptions are the flags of `monopod join`.
type joinOptions struct {
	Request  join.Request
	Version  string // of this program
	File     string
	Log      commandline.Log
	Settings agent.Settings
	Check    bool // only the flags
	Only     bool // join, and run nothing
}

// joinCommand is `monopod join`, which makes this machine a node of another machine's server. dataDir is the default of
// --data-dir.
func joinCommand(dataDir string, versions commandline.Versions) *cobra.Command {
	c := &joinOptions{Version: versions.Monopod.GitVersion}
	cmd := commandline.Server{
		Use:   "join [https://HOST:PORT]",
		Short: "Make this machine a node of another machine's server, and run its pods",
		Long: "Make this machine a node of another machine's server, and run its pods until it is stopped.\n\n" +
			"monopod token create on the server prints the whole command. The first time, the machine gets a certificate\n" +
			"with the token; afterwards monopod join alone is enough. While no server can be reached, the pods run on.",
		Args:  cobra.MaximumNArgs(1),
		Flags: c.flags(dataDir), File: func() string { return c.File }, Log: &c.Log, Complete: c.complete,
		Run: c.run,
	}.Command(func(args []string) {
		if len(args) > 0 {
			c.Request.Server = args[0]
		}
	})
	cmd.GroupID = Start
	return cmd
}

func (c *joinOptions) flags(dataDir string) *commandline.Groups {
	var g commandline.Groups
	general := g.Group("general")
	general.StringVar(&c.File, commandline.FileFlag, "",
		"YAML file with settings. Flags and environment variables take precedence.")
	general.StringVar(&c.Request.DataDir, "data-dir", dataDir, "Folder for all state; nothing is written outside of it.")
	general.StringVar(&c.Request.Token, "token", "", "Bootstrap token, as monopod token create prints it. The first join "+
		"needs it.")
	general.StringVar(&c.Request.CAHash, "ca-hash", "", "Hash of the public key of the cluster's certificate authority, "+
		"sha256:HEX, as monopod token create prints it. The first join needs it.")
	general.BoolVar(&c.Only, "only", false, "Join, and exit without running the node, which a service does.")
	general.BoolVar(&c.Check, "check", false, "Check the flags, and exit.")
	g.Group("log", &c.Log)
	c.Settings.Flags(func(subject string) *pflag.FlagSet { return g.Group(subject) })
	return &g
}

func (c *joinOptions) complete() error {
	dir, err := filepath.Abs(c.Request.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	c.Request.DataDir = dir
	if c.Settings.Runtime == agent.NoRuntime {
		return errors.New("--runtime=none: a node needs a container runtime")
	}
	if c.Settings.Kubelet.Listen != "" {
		return errors.New("--kubelet-listen: the servers reach a node that has joined through its own connection to them")
	}
	err = errors.Join(c.Log.Check(), c.Settings.Complete())
	c.Request.Node = c.Settings.NodeName
	return err
}

// run joins, and runs the node until ctx ends.
func (c *joinOptions) run(ctx context.Context, log *zap.Logger) error {
	if c.Check {
		return nil
	}
	memory.SetSoftLimit()
	if err := c.Settings.Possible(); err != nil {
		return err
	}
	if err := c.Settings.SetUp(); err != nil {
		log.Warn("failed to set up the machine for pods", zap.Error(err))
	}
	dir := c.Request.DataDir
	if _, err := os.Stat(filepath.Join(dir, "admin.kubeconfig")); err == nil {
		return fmt.Errorf("--data-dir: %s is the data folder of a server; choose another one, or run monopod reset --factory",
			dir)
	}
	if _, err := datadir.Open(dir); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if !c.Only || !local.Joined(dir) { // otherwise the service may run
		lock, err := bolt.Lock(filepath.Join(dir, "state.db"))
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	types := setup.NewTypes()
	deps := join.Deps{New: types.New, Clock: clock.RealClock{}, Log: log.Named("join")}
	identity, err := deps.Join(ctx, c.Request)
	if err != nil || c.Only {
		return err
	}
	servers := offline.New(offline.Config{
		Servers: deps.Client(identity), New: types.New, Dir: join.Cache(dir), Clock: clock.RealClock{},
		Log: log.Named("offline"),
	})
	group, ctx := guard.With(ctx)
	group.Do(func() error { return servers.Run(ctx) })
	node, err := c.node(ctx, identity, servers, types, log)
	if err != nil {
		group.Do(func() error { return err })
		return group.Wait()
	}
	here := &joined{node: node, name: c.Settings.NodeName, version: c.Version, identity: identity, servers: servers,
		started: deps.Clock.Now().Add(-host.SinceExec())}
	group.Do(func() error { return here.serve(ctx, dir) })
	socket := notify.Take() // before any child process is started
	group.Do(func() error {
		if err := socket.Run(ctx, clock.RealClock{}, here.ready); err != nil {
			log.Warn("failed to notify systemd", zap.Error(err))
		}
		return nil
	})
	group.Do(func() error { return node.Run(ctx) })
	group.Do(func() error { deps.Serve(ctx, identity, kubelet{node, c.Settings.NodeName}); return nil })
	group.Do(func() error { deps.FollowServers(ctx, identity, servers); return nil })
	group.Do(func() error { deps.Renew(ctx, identity, c.Settings.NodeName, servers); return nil })
	group.Do(func() error { return memory.Release(ctx, clock.RealClock{}) })
	log.Info("ready", zap.String("node", c.Settings.NodeName), zap.Strings("servers", identity.Servers()),
		zap.Int64("milliseconds", host.SinceExec().Milliseconds()))
	return group.Wait()
}

// node returns the node.
func (c *joinOptions) node(ctx context.Context, identity *join.Identity, servers *offline.Client, types setup.Types,
	log *zap.Logger) (*agent.Node, error) {
	services, err := serviceRanges(ctx, servers, log)
	if err != nil {
		return nil, err
	}
	return agent.NewNode(agent.NodeDeps{
		Client: servers, Metrics: prometheus.NewRegistry(), Complete: types.Complete, Log: log.Named("agent"),
		Listen: func(ctx context.Context, _ netip.Addr, _ func(netip.Addr) bool) error { <-ctx.Done(); return nil },
	}, agent.NodeConfig{
		Settings: c.Settings, DataDir: c.Request.DataDir, Services: services, Joined: true, PodCIDRsFromNode: true,
		Server: addressOf(identity.Servers()[0]),
	}), nil
}

// serviceRanges returns the ranges of Services' addresses. The first time it waits until a server returns them.
func serviceRanges(ctx context.Context, c *offline.Client, log *zap.Logger) ([]netip.Prefix, error) {
	ref := client.Ref{Resource: client.ServiceCIDRs, Name: "kubernetes"}
	retry := backoff.Retry{First: backoff.WriteInitial, Most: backoff.WriteMax}
	for {
		obj, err := c.Get(ctx, ref)
		if err != nil { // whatever it is: the ranges do not change
			obj = c.Cached(ref)
		}
		if cidrs, ok := obj.(*networkingv1.ServiceCIDR); ok {
			var out []netip.Prefix
			for _, text := range cidrs.Spec.CIDRs {
				p, err := netip.ParsePrefix(text)
				if err != nil {
					return nil, fmt.Errorf("ServiceCIDR kubernetes: %w", err)
				}
				out = append(out, p)
			}
			return out, nil
		}
		log.Warn("failed to read the ranges of Services, trying again", zap.Error(err))
		if !retry.Wait(ctx, clock.RealClock{}) {
			return nil, ctx.Err()
		}
	}
}

// addressOf returns the address of a server; zero if its URL has a name.
func addressOf(server string) netip.AddrPort {
	u, err := url.Parse(server)
	if err != nil {
		return netip.AddrPort{}
	}
	at, _ := netip.ParseAddrPort(u.Host) // zero: pods use the Service kubernetes
	return at
}

// kubelet serves the kubelet's API of a node.
type kubelet struct {
	node *agent.Node
	name string
}

// ServeHTTP implements http.Handler.
func (k kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := k.node.Find(k.name)
	if h, ok := n.(http.Handler); err == nil && ok {
		h.ServeHTTP(w, r)
		return
	}
	http.Error(w, "the node is still starting", http.StatusServiceUnavailable)
}
