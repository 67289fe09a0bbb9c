// Command monopod is a whole Kubernetes in one small process: API server,
// controllers and a node agent over containerd.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/launch"
	"monopod/agent/network/cni"
	"monopod/agent/node/host"
	"monopod/agent/node/shutdown"
	"monopod/agent/node/shutdown/draincmd"
	"monopod/agent/runtime/containerd/resetcmd"
	"monopod/apiserver"
	"monopod/apiserver/access/audit"
	"monopod/apiserver/access/auth"
	"monopod/apiserver/access/certscmd"
	"monopod/apiserver/access/entry"
	nodeauth "monopod/apiserver/access/node"
	"monopod/apiserver/access/rbac"
	"monopod/apiserver/access/rbac/policy"
	"monopod/apiserver/access/token"
	"monopod/apiserver/client"
	"monopod/apiserver/client/record"
	"monopod/apiserver/flow"
	"monopod/apiserver/follow"
	"monopod/apiserver/process/commandline"
	"monopod/apiserver/process/frugal"
	"monopod/apiserver/process/guard"
	"monopod/apiserver/process/notify"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/allocate"
	"monopod/apiserver/registry/storage"
	"monopod/controllers"
	"monopod/controllers/election"
	"monopod/controllers/kubernetesservice"
	"monopod/store"
	"monopod/store/bolt/snapshotcmd"
	"monopod/store/folder"
	"monopod/store/storecmd"
	"monopod/web"
)

func main() {
	if cni.Invoked(os.Args[0]) { // containerd runs this very program for each sandbox
		os.Exit(cni.Main(os.Args[0]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd, err := command().ExecuteContextC(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "monopod:", commandline.Explain(cmd, err))
		os.Exit(1)
	}
}

func command() *cobra.Command {
	versions := commandline.NewVersions(apiserver.Version)
	root := &cobra.Command{
		Use:           "monopod",
		Short:         "A whole Kubernetes in one small process",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       versions.Line(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return commandline.FromEnvironment(cmd, os.Environ())
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(serveCommand(), configCommand(), commandline.VersionCommand(versions), resetcmd.New(defaultDataDir), storecmd.New(stateConfig), certscmd.New(defaultDataDir), draincmd.New(defaultDataDir), snapshotcmd.New(snapshotcmd.Config{DataDir: defaultDataDir, Store: storeConfig}))
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
	File      string
	DataDir   string
	Listen    string
	Log       commandline.Log
	Profiling bool
	Serving   entry.Serving

	Services allocate.Ranges
	services allocate.Config // of Services, by complete

	State storecmd.Place

	Limits      flow.Limits
	Audit       audit.Options
	Controllers controllers.Config

	launch.Settings
}

func serveCommand() *cobra.Command {
	cfg := Config{Controllers: controllers.Default()}
	flags := cfg.flags()
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
			for _, name := range commandline.Unknown(cmd, os.Environ()) {
				log.Warn("environment variable ignored: it stands for no flag", zap.String("variable", name))
			}
			return run(cmd.Context(), cfg, log)
		},
	}
	flags.AddTo(cmd)
	return cmd
}

func configCommand() *cobra.Command {
	cfg := Config{Controllers: controllers.Default()}
	flags := cfg.flags()
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print a configuration file for serve, with all settings and what they mean",
		Long:  "Print a configuration file for serve: all settings as they are with these flags, the environment\nvariables and --config, with what they mean. It fails where serve would refuse them.",
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

// flags are all of serve's, by subject.
func (c *Config) flags() *commandline.Groups {
	var g commandline.Groups
	general := g.Group("general")
	general.StringVar(&c.File, commandline.FileFlag, "", "YAML file with settings, as monopod config prints it. Flags and environment variables take precedence.")
	general.StringVar(&c.DataDir, "data-dir", defaultDataDir, "Folder for all state; nothing is written outside of it.")
	g.Group("log", &c.Log)
	serving := g.Group("API server")
	serving.StringVar(&c.Listen, "listen", "127.0.0.1:6443", "Address and port for HTTPS. Port 0 picks a free one, which admin.kubeconfig names.")
	serving.BoolVar(&c.Profiling, "profiling", true, "Serve Go's profiles at /debug/pprof/, to users who may read that path.")
	g.Group("API server", &c.Serving, &c.Limits, &c.Services)
	g.Group("audit", &c.Audit)
	g.Group("storage", &c.State)
	g.Group("controller", &c.Controllers)
	c.Settings.Flags(func(subject string) *pflag.FlagSet { return g.Group(subject) })
	return &g
}

// complete checks what the flags say and fills in what they leave out.
func (c *Config) complete() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	c.DataDir, c.State.DataDir = dir, dir
	c.State.Traces = []string{c.path("pki", "ca.crt")}
	c.services, err = c.Services.Parse()
	return errors.Join(err, c.Log.Check(), c.Serving.Check(), c.Controllers.Check(), c.Settings.Complete())
}

func (c Config) path(name ...string) string {
	return filepath.Join(append([]string{c.DataDir}, name...)...)
}

// run starts every part, in the order in which they need each other, and stops
// them in the opposite one. It returns when ctx ends or a part fails.
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
		log.Warn("the data folder was open to others", zap.String("changed", change))
	}
	stores := stateConfig()
	stores.Log = log.Named("store")
	stores.TTL[client.Events.Resource] = cfg.Controllers.EventTTL.Duration
	state, err := storecmd.Open(ctx, cfg.State, stores)
	if err != nil {
		return err
	}
	roles := rbac.New(rbac.Config{Log: log.Named("rbac")})
	tokens := token.New(token.Config{KeyFile: cfg.path("pki", "sa.key")})
	metrics := prometheus.NewRegistry()
	panics, err := guard.New(log.Named("registry"), clock.RealClock{}, metrics)
	if err != nil {
		return errors.Join(err, state.Close())
	}
	reg := registry.New(state, registry.Resources(), registry.Config{
		Roles: roles, Tokens: tokens.Issue, Log: log.Named("registry"), Guard: panics, Services: cfg.services, Off: cfg.Controllers.Off})
	return errors.Join(serve(ctx, cfg, log, guards{reg, roles, tokens}, state, metrics), state.Close())
}

// guards are the registry and those who decide who comes in to it.
type guards struct {
	api    *registry.Registry
	roles  *rbac.Authorizer
	tokens *token.Issuer
}

// serve runs what stands on the registry.
func serve(ctx context.Context, cfg Config, log *zap.Logger, guards guards, state *storecmd.State, metrics *prometheus.Registry) error {
	if err := bootstrap(ctx, guards.api); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	restored := state.Tell(log.Named("store"))
	if err := shareKeys(ctx, cfg, log, state); err != nil {
		return err
	}
	access, err := openAccess(cfg, log)
	if err != nil {
		return err
	}
	advertised, err := access.Advertised()
	if err != nil {
		return err
	}
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg.Controllers.RootCA, cfg.Controllers.Kinds = access.CA, registry.Served(guards.api.Resources())
	metrics.MustRegister(state.Collector(guards.api.Stored()))
	manager, elector, err := newControllers(cfg, log, guards.api, metrics)
	if err != nil {
		return err
	}
	auditLog, auditFile, err := cfg.Audit.Open(clock.RealClock{}, log.Named("audit"))
	if err != nil {
		return err
	}
	defer auditFile.Close()
	p := parts{
		guards: guards, cfg: cfg, log: log, state: state, access: access, advertised: advertised, metrics: metrics,
		manager: manager, beside: besides(manager, guards, advertised, cfg.services.First()), elector: elector, audit: auditLog, agent: newAgent(cfg, log, guards.api, metrics, access, restored),
	}
	server, err := apiserver.New(ctx, p.serverConfig())
	if err != nil {
		return err
	}
	return p.run(ctx, server)
}

// besides are the publisher of the API's address and the one who follows the roles.
func besides(m *controllers.Manager, g guards, advertised netip.AddrPort, clusterIP netip.Addr) []*follow.Supervisor {
	return []*follow.Supervisor{
		m.Supervise(kubernetesservice.Name, func(deps follow.Deps) follow.Controller {
			return kubernetesservice.New(deps, kubernetesservice.Config{Server: advertised, ClusterIP: clusterIP})
		}),
		m.Supervise("rbac", func(follow.Deps) follow.Controller {
			return follow.Task("rbac", func(ctx context.Context) error { return g.roles.Run(ctx, g.api) })
		}),
	}
}

func openAccess(cfg Config, log *zap.Logger) (*entry.Entry, error) {
	names := append([]string{cfg.services.First().String()}, cfg.Serving.SANs...)
	if cfg.Kubelet.Listen != "" {
		names = append(names, host.IP().String())
	}
	access, err := entry.Open(entry.Config{
		Dir: cfg.DataDir, Listen: cfg.Listen, Kubelet: cfg.Kubelet.Listen, Node: cfg.NodeName, Names: names, Clock: clock.RealClock{}})
	if err != nil {
		return nil, err
	}
	for _, err := range access.Problems {
		log.Error("a file was left as it is", zap.Error(err))
	}
	return access, nil
}

// newControllers also makes who says, among several processes, which one runs them.
func newControllers(cfg Config, log *zap.Logger, reg *registry.Registry, metrics *prometheus.Registry) (*controllers.Manager, *election.Elector, error) {
	manager, err := controllers.New(controllers.Deps{
		Client: reg, Clock: clock.RealClock{}, Log: log.Named("controllers"), Metrics: metrics}, cfg.Controllers)
	if err != nil {
		return nil, nil, err
	}
	elector, err := election.New(election.Config{
		Client: reg, Identity: cfg.NodeName + "_" + uuid.NewString(), Log: log.Named("election")})
	return manager, elector, err
}

// newAgent tells of a state that was restored before this start.
func newAgent(cfg Config, log *zap.Logger, reg *registry.Registry, metrics *prometheus.Registry, access *entry.Entry, restored string) *launch.Node {
	return launch.New(launch.Deps{Client: reg, Metrics: metrics, Complete: reg.Complete, Log: log.Named("agent")}, launch.Config{
		Settings: cfg.Settings, DataDir: cfg.DataDir, Server: access.Listens(), Port: access.KubeletPort(),
		Services: cfg.services.Complete().Addresses, Restored: restored,
	})
}

// parts are all that run together.
type parts struct {
	guards
	cfg        Config
	log        *zap.Logger
	state      *storecmd.State
	access     *entry.Entry
	advertised netip.AddrPort
	metrics    *prometheus.Registry
	manager    *controllers.Manager
	beside     []*follow.Supervisor // of the controllers, on every server
	elector    *election.Elector
	audit      *audit.Log
	agent      *launch.Node
}

func (p *parts) serverConfig() apiserver.Config {
	return apiserver.Config{
		Registry:      p.api,
		Authenticator: auth.Any(p.access.Authenticator(), p.tokens.Authenticator(p.api), token.Bootstrap(p.api, clock.RealClock{})),
		Tokens:        p.tokens,
		Authorizer:    nodeauth.Authorizer{Authorizer: p.roles, Client: p.api},
		Node:          p.agent.Find,
		Pods:          p.agent,
		Checks:        append(checks(p.manager, p.beside, p.elector, p.state), apiserver.Check{Name: "pleg", Live: true, Ask: p.agent.PLEG}, apiserver.Check{Name: "agent", Ask: p.agent.Health}),
		Usage:         p.agent.Usage,
		Shutdown:      shutdown.Handler(p.agent.Shutdown),
		Metrics:       p.metrics,
		Web:           web.Handler(),
		Access:        p.access,
		Configz:       map[string]any{"monopod": p.cfg, "kubecontrollermanager.config.k8s.io": p.manager.Configz()},
		Debug:         func(name string) http.Handler { return p.manager.DebuggingHandlers()[name] },
		Snapshot:      p.state.Save,
		Profiling:     p.cfg.Profiling,
		Limits:        p.cfg.Limits,
		Audit:         p.audit,
		Log:           p.log.Named("apiserver"),
	}
}

// run runs them until ctx ends or one of them fails. The server stops last: the
// parts write their last words through the registry, and clients see them until the
// end.
func (p *parts) run(ctx context.Context, server *apiserver.Server) error {
	last, stopLast := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLast()
	group, groupCtx := guard.With(ctx)
	group.Do(func() error { return server.Serve(last, p.access) })
	group.Do(tellManager(groupCtx, server, p.log))
	for _, s := range p.beside {
		group.Do(func() error { return s.Run(last) })
	}
	group.Do(func() error { return p.access.Run(last, p.log.Named("certificates")) })
	group.Do(func() error {
		defer stopLast()
		return p.work(groupCtx)
	})
	p.log.Info("ready", zap.String("address", p.access.Address), zap.String("kubeconfig", p.cfg.path("admin.kubeconfig")),
		zap.Int64("milliseconds", host.SinceExec().Milliseconds()))
	p.cfg.Log.Greet(os.Stderr, p.access.Reachable(), p.cfg.DataDir)
	return group.Wait()
}

// work runs those that work on what the server serves.
func (p *parts) work(ctx context.Context) error {
	group, ctx := guard.With(ctx)
	group.Do(func() error {
		if p.state.Shared() { // by several processes, of which one runs them
			return p.elector.Run(ctx, p.manager.Run)
		}
		return p.manager.Run(ctx)
	})
	group.Do(func() error { return p.agent.Run(ctx) })
	group.Do(func() error { return p.keepState(ctx) })
	group.Do(func() error { return frugal.Run(ctx, clock.RealClock{}) })
	return group.Wait()
}

// keepState looks after the state until ctx ends; an Event on the Node tells of a
// file that was lost.
func (p *parts) keepState(ctx context.Context) error {
	dropped, err := record.NewMetrics(p.metrics)
	if err != nil {
		return err
	}
	events := record.New(p.api, "monopod", p.cfg.NodeName, clock.RealClock{}, dropped)
	defer events.Close()
	node := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: p.cfg.NodeName, UID: types.UID(p.cfg.NodeName)}
	return p.state.Run(ctx, func(message string) {
		events.Reference(node, corev1.EventTypeWarning, "StateFileLost", "%s", message)
	})
}

// tellManager tells systemd, until ctx ends, how far the server is.
func tellManager(ctx context.Context, server *apiserver.Server, log *zap.Logger) func() error {
	socket := notify.Take() // now, before anything else is started
	return func() error {
		if err := socket.Run(ctx, clock.RealClock{}, server.Ready); err != nil {
			log.Warn("systemd is not told how far monopod is", zap.Error(err))
		}
		return nil
	}
}

// bootstrap creates what every cluster has.
func bootstrap(ctx context.Context, reg *registry.Registry) error {
	if err := reg.Bootstrap(ctx); err != nil {
		return err
	}
	group, ctx := guard.With(ctx)
	group.Do(func() error { return policy.Bootstrap(ctx, reg) })
	group.Do(func() error { return storage.Bootstrap(ctx, reg) })
	return group.Wait()
}

// shareKeys gives the servers that share one etcd one authority and one token.
func shareKeys(ctx context.Context, cfg Config, log *zap.Logger, state *storecmd.State) error {
	if state.Etcd == nil {
		return nil
	}
	differs, err := auth.Share(cfg.path("pki"), func(mine []byte) ([]byte, error) { return state.Etcd.Agree(ctx, "pki", mine) })
	if err != nil {
		return fmt.Errorf("share pki: %w", err)
	}
	if differs {
		log.Warn("this server has an authority and a token of its own: kubeconfigs of the others do not work here", zap.String("folder", cfg.path("pki")))
	}
	return nil
}

// checks are the health of the API itself, of the state below it, and of each
// controller, where this process runs them.
func checks(m *controllers.Manager, beside []*follow.Supervisor, elector *election.Elector, state *storecmd.State) []apiserver.Check {
	all := []apiserver.Check{{Name: "ping", Ready: true, Live: true, Ask: func(context.Context) error { return nil }}}
	all = append(all, apiserver.Check{Name: state.Name(), Ready: true, Live: state.Shared(), Ask: state.Healthy})
	for _, c := range m.Checks() {
		all = append(all, apiserver.Check{Name: c.Name, Live: true, Ask: func(ctx context.Context) error {
			if state.Shared() && !elector.Leading() {
				return nil
			}
			return c.Check(ctx)
		}})
	}
	for _, s := range beside {
		all = append(all, apiserver.Check{Name: s.Name(), Ask: s.Check})
	}
	return all
}
