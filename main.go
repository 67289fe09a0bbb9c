// Command monopod is a whole Kubernetes in one small process: API server,
// controllers and a node agent over containerd.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"monopod/agent/images/stock"
	"monopod/agent/launch"
	"monopod/agent/network/cni"
	"monopod/agent/network/ingress"
	"monopod/agent/node/check/checkcmd"
	"monopod/agent/node/host"
	"monopod/agent/node/inspectcmd"
	"monopod/agent/node/installcmd"
	"monopod/agent/node/shutdown"
	"monopod/agent/node/shutdown/draincmd"
	"monopod/agent/runtime/containerd/resetcmd"
	"monopod/apiserver"
	"monopod/apiserver/access/admin"
	"monopod/apiserver/access/certscmd"
	"monopod/apiserver/client/dashboardcmd"
	"monopod/apiserver/client/imagescmd"
	"monopod/apiserver/client/kubectlcmd"
	"monopod/apiserver/client/logscmd"
	"monopod/apiserver/client/runcmd"
	"monopod/apiserver/client/status"
	"monopod/apiserver/client/statuscmd"
	"monopod/apiserver/client/whycmd"
	"monopod/apiserver/flow/configure"
	"monopod/apiserver/follow"
	api "monopod/apiserver/launch"
	"monopod/apiserver/process/clockset"
	"monopod/apiserver/process/commandline"
	"monopod/apiserver/process/envtest"
	"monopod/apiserver/process/frugal"
	"monopod/apiserver/process/guard"
	"monopod/apiserver/process/health"
	"monopod/apiserver/process/netchange"
	"monopod/apiserver/process/notify"
	"monopod/apiserver/registry"
	"monopod/controllers"
	"monopod/controllers/customresource"
	"monopod/controllers/election"
	"monopod/controllers/kubernetesservice"
	"monopod/store/bolt/snapshotcmd"
	"monopod/store/folder"
	"monopod/store/storecmd"
	"monopod/web"
)

func main() {
	frugal.Profile()
	if cni.Invoked(os.Args[0]) { // containerd runs this program for each sandbox
		os.Exit(cni.Main(os.Args[0]))
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
		Version:       versions.Line(), // without a template of its own: text/template keeps the linker from dropping unused methods
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return commandline.FromEnvironment(cmd, os.Environ())
		},
	}
	root.AddCommand(runcmd.New(), statuscmd.New(defaultDataDir), whycmd.New(defaultDataDir), checkcmd.New(defaultDataDir, versions.Built()), imagescmd.New(defaultDataDir), logscmd.New(defaultDataDir), inspectcmd.New(defaultDataDir, versions))
	root.AddCommand(installcmd.New(defaultDataDir)...)
	root.AddCommand(dashboardcmd.New(defaultDataDir))
	kubectlcmd.AddTo(root, defaultDataDir)
	serve, config := serveCommands()
	root.AddCommand(serve, config, commandline.VersionCommand(versions), resetcmd.New(defaultDataDir), storecmd.New(stateConfig), certscmd.New(defaultDataDir), draincmd.New(defaultDataDir), envtest.AssetsCommand(), snapshotcmd.New(snapshotcmd.Config{DataDir: defaultDataDir, Store: api.Stores}))
	commandline.RefuseUnknown(root)
	return root
}

// stateConfig is for the commands that look at a state, which may lie in etcd.
func stateConfig() storecmd.Config {
	return api.SharedStores(controllers.Default().EventTTL.Duration)
}

const defaultDataDir = "/var/lib/monopod"

// Config is the configuration of `monopod serve`. Each part reads its own section.
type Config struct {
	File            string
	DataDir         string
	Log             commandline.Log
	API             api.Settings
	Controllers     controllers.Config
	launch.Settings // of the node
}

// serveCommands returns serve and config. They share their flags, of which there are some 300: at most one of them runs.
func serveCommands() (serve, config *cobra.Command) {
	cfg := Config{Controllers: controllers.Default()}
	flags := cfg.flags()
	return serveCommand(&cfg, flags), configCommand(&cfg, flags)
}

func serveCommand(cfg *Config, flags *commandline.Groups) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the API server, the controllers and the node agent",
		Long:  "Run the API server, the controllers and the node agent.\n\nEvery flag has an environment variable: MONOPOD_DATA_DIR is --data-dir. The flag takes precedence.\nA file named by --config can set every flag, too; monopod config prints one.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.FromFile(cfg.File); err != nil {
				return err
			}
			if err := cfg.complete(); err != nil {
				return err
			}
			log, err := cfg.Log.Open(os.Stderr)
			if err != nil {
				return err
			}
			commandline.Libraries(log)
			for _, name := range commandline.Unknown(cmd, os.Environ()) {
				log.Warn("environment variable ignored: it matches no flag", zap.String("variable", name))
			}
			return run(cmd.Context(), *cfg, log)
		},
	}
	flags.AddTo(cmd)
	return cmd
}

func configCommand(cfg *Config, flags *commandline.Groups) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print a configuration file for serve, with all settings and their descriptions",
		Long:  "Print a configuration file for serve: every setting with its description and its value from the flags,\nthe environment variables and --config. An invalid setting is an error, as for serve.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.FromFile(cfg.File); err != nil {
				return err
			}
			var out bytes.Buffer
			if err := errors.Join(flags.Print(&out), cfg.complete()); err != nil {
				return err
			}
			_, err := cmd.OutOrStdout().Write(out.Bytes())
			return err
		},
	}
	flags.AddTo(cmd)
	return cmd
}

// flags returns all flags of serve, by subject.
func (c *Config) flags() *commandline.Groups {
	var g commandline.Groups
	general := g.Group("general")
	general.StringVar(&c.File, commandline.FileFlag, "", "YAML file with settings, as monopod config prints it. Flags and environment variables take precedence.")
	general.StringVar(&c.DataDir, "data-dir", defaultDataDir, "Folder for all state; nothing is written outside of it.")
	g.Group("log", &c.Log)
	group := func(subject string) *pflag.FlagSet { return g.Group(subject) }
	c.API.Flags(group)
	g.Group("controller", &c.Controllers)
	c.Settings.Flags(group)
	return &g
}

// complete validates the flags and sets defaults.
func (c *Config) complete() error {
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	c.DataDir = dir
	err = errors.Join(c.API.Complete(dir), c.Log.Check(), c.Controllers.Check(), c.Settings.Complete())
	if err != nil {
		return err
	}
	return c.Settings.Network.CheckServices(c.API.ServiceRange().Complete().Addresses)
}

// run starts every part, in the order of their dependencies, and stops them in reverse order. It returns when
// ctx ends or a part fails.
func run(ctx context.Context, cfg Config, log *zap.Logger) error {
	frugal.Pace()
	if err := cfg.Possible(); err != nil {
		return err
	}
	closed, err := folder.Open(cfg.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	for _, change := range closed {
		log.Warn("the permissions of the data folder were too wide", zap.String("changed", change))
	}
	metrics := prometheus.NewRegistry()
	served, err := api.Open(ctx, cfg.apiConfig(log), metrics)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, cfg, log, served, metrics), served.Close())
}

func (c Config) apiConfig(log *zap.Logger) api.Config {
	var names []string
	if c.Kubelet.Listen != "" {
		for _, ip := range host.IPs([]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}) {
			names = append(names, ip.String())
		}
	}
	return api.Config{
		Settings: c.API, DataDir: c.DataDir, Node: c.NodeName, Kubelet: c.Kubelet.Listen, Names: names,
		EventTTL: c.Controllers.EventTTL.Duration, Off: c.off, LoopbackPods: c.LoopbackPods(), Log: log,
	}
}

// off reports whether nothing acts on the kinds of a controller.
func (c Config) off(controller string) bool {
	if controller == ingress.Name {
		return !c.Ingress.On()
	}
	return c.Controllers.Off(controller)
}

// serve runs what stands on the API.
func serve(ctx context.Context, cfg Config, log *zap.Logger, served *api.API, metrics *prometheus.Registry) error {
	p := parts{API: served, cfg: cfg, log: log}
	p.agent = launch.New(launch.Deps{Client: p.Registry, Metrics: metrics, Complete: p.Registry.Complete, Listen: p.Access.ListenForPods, Log: log.Named("agent")}, launch.Config{
		Settings: cfg.Settings, DataDir: cfg.DataDir, Server: p.Access.Listens(), Port: p.Access.KubeletPort(),
		Services: cfg.API.ServiceRange().Complete().Addresses, LoadBalancers: cfg.Controllers.Services.Pool(), Restored: p.Restored,
	})
	if err := p.addControllers(metrics); err != nil {
		return err
	}
	server, closed, err := p.New(ctx, p.serverConfig())
	if err != nil {
		return err
	}
	p.always = append(p.always, p.manager.Supervise(configure.Name, server.FlowControl))
	return errors.Join(p.run(ctx, server), closed())
}

// parts are the parts that run together.
type parts struct {
	*api.API
	cfg     Config
	log     *zap.Logger
	manager *controllers.Manager
	always  []*follow.Supervisor // controllers that run on every server
	elector *election.Elector    // decides which of several processes runs the controllers
	agent   *launch.Node
}

func (p *parts) addControllers(metrics *prometheus.Registry) (err error) {
	cfg := p.cfg.Controllers
	cfg.RootCA, cfg.Kinds, cfg.ClockSet = p.Access.CA, registry.ServedBy(p.Registry), clockset.Watch
	cfg.Services.Ranges = p.cfg.API.ServiceRange().Complete().Addresses
	cfg.Sign, cfg.Allowed = p.Access.Sign, p.MayRequest
	p.manager, err = controllers.New(controllers.Deps{
		Client: p.Measured(p.agent.Usage), Clock: clock.RealClock{}, Log: p.log.Named("controllers"), Metrics: metrics}, cfg)
	if err != nil {
		return err
	}
	p.always = []*follow.Supervisor{
		p.manager.Supervise(kubernetesservice.Name, func(deps follow.Deps) follow.Controller {
			return kubernetesservice.New(deps, kubernetesservice.Config{
				Server: p.Access.Advertised, ClusterIP: p.cfg.API.ServiceRange().First(), Moved: []func(context.Context) <-chan struct{}{netchange.Watch, p.Access.Moved},
			})
		}),
		p.manager.Supervise("rbac", func(follow.Deps) follow.Controller { return p.Roles() }),
		p.manager.Supervise("definitions", func(follow.Deps) follow.Controller { return p.Definitions() }),
		p.manager.Supervise("webhooks", func(follow.Deps) follow.Controller { return p.Webhooks() }),
		p.manager.Supervise("aggregation", p.Aggregation),
		p.manager.Supervise(customresource.Name, func(deps follow.Deps) follow.Controller { return customresource.New(deps) }),
	}
	p.elector, err = election.New(election.Config{
		Client: p.Registry, Identity: p.cfg.NodeName + "_" + uuid.NewString(), Log: p.log.Named("election")})
	return err
}

// serverConfig is what the server knows of the other parts.
func (p *parts) serverConfig() apiserver.Config {
	return apiserver.Config{
		Node:   p.agent.Find,
		Pods:   p.agent,
		Checks: append(p.checks(), health.Check{Name: "pleg", Live: true, Ask: p.agent.PLEG}, health.Check{Name: "agent", Ask: p.agent.Health}, health.Check{Name: "network", Degrades: true, Ask: p.agent.Network}, health.Check{Name: "ingress", Ask: p.agent.Ingress}),
		Usage:  p.agent.Usage,
		Admin: admin.Config{
			About: p.about, Recent: p.cfg.Log.Recent.Bytes, Shutdown: shutdown.Handler(p.agent.Shutdown), Images: stock.Handler(p.agent.Images)},
		Web:     web.Handler(),
		Configz: map[string]any{"monopod": p.cfg, "kubecontrollermanager.config.k8s.io": p.manager.Configz()},
		Debug:   func(name string) http.Handler { return p.manager.DebuggingHandlers()[name] },
	}
}

// about describes the process.
func (p *parts) about(ctx context.Context) status.Process {
	about := p.API.About(ctx)
	about.Version, about.Runtime = commandline.NewVersions(apiserver.Version).Monopod.GitVersion, p.cfg.Runtime
	about.Started = clock.RealClock{}.Now().Add(-host.SinceExec())
	return about
}

// run runs them until ctx ends or one of them fails. The server stops last: the parts write their last changes
// through the registry, and clients see them until the end.
func (p *parts) run(ctx context.Context, server *apiserver.Server) error {
	last, stopLast := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLast()
	group, groupCtx := guard.With(ctx)
	group.Do(func() error { return server.Serve(last, p.Access) })
	group.Do(tellManager(groupCtx, server, p.log))
	for _, s := range p.always {
		group.Do(func() error { return s.Run(last) })
	}
	group.Do(func() error { return p.Access.Run(last, p.log.Named("certificates")) })
	group.Do(func() error {
		defer stopLast()
		return p.work(groupCtx)
	})
	p.log.Info("ready", zap.String("address", p.Access.Address), zap.String("kubeconfig", filepath.Join(p.cfg.DataDir, "admin.kubeconfig")),
		zap.Int64("milliseconds", host.SinceExec().Milliseconds()))
	p.cfg.Log.Greet(os.Stderr, p.Access.Reachable(), p.cfg.DataDir)
	return group.Wait()
}

// work runs the parts that use the API.
func (p *parts) work(ctx context.Context) error {
	group, ctx := guard.With(ctx)
	group.Do(func() error {
		if p.State.Shared() { // by several processes, of which one runs them
			return p.elector.Run(ctx, p.manager.Run)
		}
		return p.manager.Run(ctx)
	})
	group.Do(func() error { return p.agent.Run(ctx) })
	group.Do(func() error { return p.KeepState(ctx) })
	group.Do(func() error { return frugal.Run(ctx, clock.RealClock{}) })
	return group.Wait()
}

// tellManager tells systemd, until ctx ends, how far the server is.
func tellManager(ctx context.Context, server *apiserver.Server, log *zap.Logger) func() error {
	socket := notify.Take() // now, before any child process is started
	return func() error {
		if err := socket.Run(ctx, clock.RealClock{}, server.Ready); err != nil {
			log.Warn("failed to notify systemd", zap.Error(err))
		}
		return nil
	}
}

// checks are the health of the API itself, of the state below it, and of each
// controller, where this process runs them.
func (p *parts) checks() []health.Check {
	all := []health.Check{{Name: "ping", Ready: true, Live: true, Ask: func(context.Context) error { return nil }}}
	all = append(all, health.Check{Name: p.State.Name(), Ready: true, Live: p.State.Shared(), Ask: p.State.Healthy})
	all = append(all, health.Check{Name: "registry", Ask: p.API.Health})
	for _, c := range p.manager.Checks() {
		all = append(all, health.Check{Name: c.Name, Live: true, Ask: func(ctx context.Context) error {
			if p.State.Shared() && !p.elector.Leading() {
				return nil
			}
			return c.Check(ctx)
		}})
	}
	for _, s := range p.always {
		all = append(all, health.Check{Name: s.Name(), Ask: s.Check})
	}
	return all
}
