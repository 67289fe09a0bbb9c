// Command monopod is a whole Kubernetes in one small process: API server, controllers and a node agent over containerd.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/agent"
	"monopod/agent/cmd"
	"monopod/agent/cmd/commandline"
	"monopod/agent/cmd/envtest"
	"monopod/agent/host"
	"monopod/agent/network/cni"
	"monopod/apiserver"
	"monopod/apiserver/admin"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/memory"
	metricsapi "monopod/apiserver/kit/metrics"
	"monopod/apiserver/kit/systemd"
	api "monopod/apiserver/setup"
	"monopod/apiserver/status"
	"monopod/controllers"
	"monopod/controllers/certificates"
	"monopod/store/datadir"
	"monopod/web"
)

// documents are the pages that the dashboard's help searches.
//
//go:embed README.md docs/*.md
var documents embed.FS

func main() {
	if cni.Invoked(os.Args[0]) { // containerd runs this program for each sandbox
		os.Exit(cni.Main(os.Args[0]))
	}
	if code, ran := host.RunAsInit(); ran {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if envtest.Invoked(os.Args[0]) { // an operator's tests run this program as kube-apiserver and etcd
		os.Exit(envtest.Main(ctx, os.Args, serveWith))
	}
	cmd, err := command().ExecuteContextC(ctx)
	stop()
	if err != nil {
		os.Exit(commandline.Fail(os.Stderr, cmd, err))
	}
}

// serveWith runs serve with these flags.
func serveWith(ctx context.Context, flags []string) error {
	root := command()
	root.SetArgs(append([]string{"serve"}, flags...))
	cmd, err := root.ExecuteContextC(ctx)
	return commandline.Explain(cmd, err)
}

func command() *cobra.Command {
	versions := commandline.NewVersions(apiserver.Version)
	root := &cobra.Command{
		Use:           "monopod",
		Short:         "A whole Kubernetes in one small process",
		SilenceUsage:  true,
		SilenceErrors: true,
		// Cobra's default template: a custom one uses text/template, which keeps the linker from dropping unused methods.
		Version: versions.Line(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return commandline.FromEnvironment(cmd, os.Environ())
		},
	}
	serve, config := serveCommands()
	serve.GroupID, config.GroupID = cmd.Start, cmd.Start
	deps := cmd.Deps{DataDir: defaultDataDir, Versions: versions, EventTTL: controllers.Default().EventTTL.Duration}
	all := append(cmd.All(deps),
		serve, config, commandline.VersionCommand(versions), envtest.AssetsCommand())
	cmd.AddTo(root, all...)
	commandline.RefuseUnknown(root)
	return root
}

const defaultDataDir = "/var/lib/monopod"

// Config is the configuration of `monopod serve`. Each part reads its own section.
type Config struct {
	File           string
	DataDir        string
	Log            commandline.Log
	API            api.Settings
	Controllers    controllers.Config
	agent.Settings // of the node
}

func serveCommands() (serve, config *cobra.Command) {
	cfg := Config{Controllers: controllers.Default()}
	server := commandline.Server{
		Use: "serve", Short: "Run the API server, the controllers and the node agent",
		Long: "Run the API server, the controllers and the node agent.\n\n" +
			"Every flag has an environment variable: MONOPOD_DATA_DIR is --data-dir. The flag takes precedence.\n" +
			"A file named by --config can set every flag, too; monopod config prints one.",
		Flags: cfg.flags(), File: cfg.file, Log: &cfg.Log, Complete: cfg.complete,
		Run: func(ctx context.Context, log *zap.Logger) error { return run(ctx, cfg, log) },
	}
	return server.Command(nil), server.Config()
}

// flags returns all flags of serve, by subject.
func (c *Config) flags() *commandline.Groups {
	var g commandline.Groups
	general := g.Group("general")
	general.StringVar(&c.File, commandline.FileFlag, "",
		"YAML file with settings, as monopod config prints it. Flags and environment variables take precedence. Empty: "+
			"config.yaml in the data folder, if it exists.")
	general.StringVar(&c.DataDir, "data-dir", defaultDataDir, "Folder for all state; nothing is written outside of it.")
	g.Group("log", &c.Log)
	group := func(subject string) *pflag.FlagSet { return g.Group(subject) }
	c.API.Flags(group)
	g.Group("controller", &c.Controllers)
	c.Settings.Flags(group)
	return &g
}

// file returns the path of the file with settings; empty: there is none.
func (c *Config) file() string {
	path := filepath.Join(c.DataDir, "config.yaml")
	if _, err := os.Stat(path); c.File != "" || err != nil {
		return c.File
	}
	return path
}

// complete validates the flags and sets defaults.
func (c *Config) complete() error {
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	c.DataDir = dir
	c.Ingress.Complete(c.UsualPorts(c.API.Listen))
	err = errors.Join(c.API.Complete(dir), c.Log.Check(), c.Controllers.Check(), c.Settings.Complete())
	if err != nil {
		return err
	}
	return c.Settings.Network.CheckServices(c.API.ServiceRange().Complete().Addresses)
}

// run starts every part, in the order of their dependencies, and stops them in reverse order. It returns when
// ctx ends or a part fails.
func run(ctx context.Context, cfg Config, log *zap.Logger) error {
	memory.SetSoftLimit()
	if local.Joined(cfg.DataDir) {
		return fmt.Errorf("--data-dir: %s is the data folder of a machine that has joined another one's server; "+
			"run monopod join, or monopod leave first", cfg.DataDir)
	}
	if err := cfg.Possible(); err != nil {
		return err
	}
	if err := cfg.SetUp(); err != nil {
		log.Warn("failed to set up the machine for pods", zap.Error(err))
	}
	restricted, err := datadir.Open(cfg.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	for _, change := range restricted {
		log.Warn("restricted the permissions of the data folder", zap.String("changed", change))
	}
	metrics := prometheus.NewRegistry()
	a, err := api.Open(ctx, cfg.api(log), metrics)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, cfg, log, a, metrics), a.Close())
}

// serve runs the server, the controllers and the node agent.
func serve(ctx context.Context, cfg Config, log *zap.Logger, a *api.API, metrics *prometheus.Registry) (err error) {
	p := parts{cfg: cfg, log: log, api: a}
	p.node = agent.NewNode(agent.NodeDeps{
		Client: a.Registry, Kinds: a.Kinds(), Metrics: metrics, Complete: a.Registry.Complete,
		Listen: a.Access.ListenForPods, Log: log.Named("agent"),
	}, p.nodeConfig())
	p.controllers, err = controllers.NewControllers(controllers.Deps{
		Client: a.Whole(p.usage), Clock: clock.RealClock{}, Log: log, Metrics: metrics,
	}, p.controllersConfig())
	if err != nil {
		return err
	}
	server, closeServer, err := a.New(ctx, p.serverConfig())
	if err != nil {
		return err
	}
	p.server = server
	return errors.Join(p.run(ctx), closeServer())
}

// parts are the parts of the process, which run together.
type parts struct {
	cfg         Config
	log         *zap.Logger
	api         *api.API
	node        *agent.Node
	controllers *controllers.Controllers
	server      *apiserver.Server
}

func (c Config) api(log *zap.Logger) api.Config {
	return api.Config{
		Settings: c.API, DataDir: c.DataDir, Node: c.NodeName, Kubelet: c.Kubelet.Listen, Names: c.ServingNames(),
		EventTTL: c.Controllers.EventTTL.Duration, Off: c.off, LoopbackPods: c.LoopbackPods(), Log: log,
	}
}

// off reports whether a controller is disabled, so that nothing acts on its kinds.
func (c Config) off(controller string) bool {
	if off, inAgent := c.Settings.Off(controller); inAgent {
		return off
	}
	return c.Controllers.Off(controller)
}

func (p *parts) nodeConfig() agent.NodeConfig {
	return agent.NodeConfig{
		Settings: p.cfg.Settings, DataDir: p.cfg.DataDir, Server: p.api.Access.Listens(), Port: p.api.Access.KubeletPort(),
		Services: p.cfg.API.ServiceRange().Complete().Addresses, LoadBalancers: p.cfg.Controllers.Services.Pool(),
		Restored: p.api.Restored,
		// Machines with the same data folder would choose the same ranges.
		PodCIDRsFromNode: p.api.State.Shared() && p.cfg.Controllers.AllocatesNodeCIDRs(),
	}
}

func (p *parts) controllersConfig() controllers.ProcessConfig {
	cfg, a := p.cfg.Controllers, p.api
	cfg.RootCA, cfg.Kinds, cfg.Silent, cfg.Allowed = a.Access.CA, a.Kinds(), a.Silent, a.MayRequest
	cfg.Sign = certificates.Authorities{Cluster: a.Access.Sign, Kubelet: a.Access.SignKubelet}
	cfg.Services.Ranges = p.cfg.API.ServiceRange().Complete().Addresses
	return controllers.ProcessConfig{
		Config: cfg, Node: p.cfg.NodeName, Shared: a.State.Shared(),
		Server: a.Access.Advertised, Moved: a.Access.Moved, ClusterIP: p.cfg.API.ServiceRange().APIServerAddress(),
		Always: []controllers.Always{
			{Name: "rbac", New: a.Roles},
			{Name: "definitions", New: a.Definitions},
			{Name: "webhooks", New: a.Webhooks},
			{Name: "aggregation", New: a.Aggregation},
			{Name: "flowcontrol", New: p.flowControl},
		},
	}
}

// flowControl returns the controller of the server's limits. It reads p.server only when it runs, because the server is
// created after the controllers.
func (p *parts) flowControl(deps follow.Deps) follow.Controller {
	controller := sync.OnceValue(func() follow.Controller { return p.server.FlowControl(deps) })
	return follow.Task("flowcontrol", func(ctx context.Context) error { return controller().Run(ctx) })
}

// usage returns the usage of all nodes, for autoscalers. Like flowControl it reads p.server only when a controller
// runs.
func (p *parts) usage(ctx context.Context) ([]*metricsapi.NodeMetrics, []*metricsapi.PodMetrics, error) {
	return p.server.Usage(ctx)
}

func (p *parts) serverConfig() apiserver.Config {
	return apiserver.Config{
		Node:   p.node.Find,
		Pods:   p.node,
		Checks: slices.Concat(p.api.Checks(), p.controllers.Checks(), p.node.Checks()),
		Usage:  p.node.Usage,
		Admin: admin.Config{
			About: p.about, Recent: p.cfg.Log.Recent.Bytes, Shutdown: p.node.Shutdown(), Images: p.node.Images(),
		},
		Web:     web.Handler(documents),
		Configz: map[string]any{"monopod": p.cfg, "kubecontrollermanager.config.k8s.io": p.controllers.Manager.Configz()},
		Debug:   func(name string) http.Handler { return p.controllers.Manager.DebuggingHandlers()[name] },
	}
}

// about describes the process.
func (p *parts) about(ctx context.Context) status.Process {
	about := p.api.About(ctx)
	about.Version, about.Runtime = commandline.NewVersions(apiserver.Version).Monopod.GitVersion, p.cfg.Runtime
	about.Started = clock.RealClock{}.Now().Add(-host.SinceExec())
	return about
}

// run runs the parts until ctx ends or one of them fails. The server stops last: the parts write their last changes
// through the registry, and clients see them until the end.
func (p *parts) run(ctx context.Context) error {
	last, stopLast := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLast()
	group, groupCtx := guard.With(ctx)
	group.Do(func() error { return p.server.Serve(last, p.api.Access) })
	socket := systemd.Take() // reports to systemd whether the server is ready; taken before any child process is started
	group.Do(func() error {
		if err := socket.Run(groupCtx, clock.RealClock{}, p.server.Ready); err != nil {
			p.log.Warn("failed to notify systemd", zap.Error(err))
		}
		return nil
	})
	group.Do(func() error { return p.controllers.RunAlways(last) })
	group.Do(func() error { return p.api.Access.Run(last, p.log.Named("certificates")) })
	group.Do(func() error {
		defer stopLast()
		using, usingCtx := guard.With(groupCtx) // the parts that use the API
		using.Do(func() error { return p.controllers.Run(usingCtx) })
		using.Do(func() error { return p.node.Run(usingCtx) })
		using.Do(func() error { return p.api.KeepState(usingCtx) })
		using.Do(func() error { return memory.Release(usingCtx, clock.RealClock{}) })
		return using.Wait()
	})
	p.log.Info("ready", zap.String("address", p.api.Access.Address),
		zap.String("kubeconfig", filepath.Join(p.cfg.DataDir, "admin.kubeconfig")),
		zap.Int64("milliseconds", host.SinceExec().Milliseconds()))
	p.cfg.Log.Greet(os.Stderr, p.api.Access.Reachable(), p.cfg.DataDir)
	return group.Wait()
}
