package controllers

import (
	"context"
	"net/netip"

	"github.com/google/uuid"

	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/health"
	"monopod/apiserver/kit/kernel"
	"monopod/controllers/customresource"
	"monopod/controllers/election"
	"monopod/controllers/kubernetesservice"
)

// ProcessConfig of Controllers.
type ProcessConfig struct {
	Config
	Node   string   // name of this process's node
	Shared bool     // other processes use the same state, and elect one to run the controllers
	Always []Always // further controllers that run on every server

	Server    func() (netip.AddrPort, error)            // returns the current address of the API
	Moved     func(ctx context.Context) <-chan struct{} // receives when the result of Server may have changed
	ClusterIP netip.Addr                                // cluster IP of the Service kubernetes
}

// Always is a controller that runs on every server.
type Always struct {
	Name string
	New  func(deps follow.Deps) follow.Controller
}

// Controllers contains the controllers of a process.
type Controllers struct {
	Manager *Manager
	always  []*follow.Supervisor
	elector *election.Elector // nil unless the state is shared
}

// NewControllers creates the controllers without starting them. All deps are required.
func NewControllers(deps Deps, cfg ProcessConfig) (*Controllers, error) {
	cfg.ClockSet = kernel.WatchClock
	manager, err := New(
		Deps{Client: deps.Client, Clock: deps.Clock, Log: deps.Log.Named("controllers"), Metrics: deps.Metrics}, cfg.Config)
	if err != nil {
		return nil, err
	}
	c := &Controllers{Manager: manager}
	among := "" // the other servers on the same state
	if cfg.Shared {
		among = cfg.Node
	}
	c.add(Always{kubernetesservice.Name, func(deps follow.Deps) follow.Controller {
		return kubernetesservice.New(deps, kubernetesservice.Config{
			Server: cfg.Server, ClusterIP: cfg.ClusterIP, Node: among,
			Moved: []func(context.Context) <-chan struct{}{kernel.WatchNetwork, cfg.Moved}})
	}})
	c.add(Always{customresource.Name, func(deps follow.Deps) follow.Controller { return customresource.New(deps) }})
	for _, e := range cfg.Always {
		c.add(e)
	}
	if cfg.Shared {
		c.elector, err = election.New(election.Config{
			Client: deps.Client, Identity: cfg.Node + "_" + uuid.NewString(), Clock: deps.Clock,
			Log: deps.Log.Named("election")})
	}
	return c, err
}

// add adds a controller that runs on every server.
func (c *Controllers) add(e Always) { c.always = append(c.always, c.Manager.Supervise(e.Name, e.New)) }

// RunAlways runs the controllers of every server until ctx ends.
func (c *Controllers) RunAlways(ctx context.Context) error {
	group, ctx := guard.With(ctx)
	for _, s := range c.always {
		group.Do(func() error { return s.Run(ctx) })
	}
	return group.Wait()
}

// Run runs the other controllers until ctx ends. On a shared state it runs them only while this process is the leader.
func (c *Controllers) Run(ctx context.Context) error {
	if c.elector != nil {
		return c.elector.Run(ctx, c.Manager.Run)
	}
	return c.Manager.Run(ctx)
}

// Checks returns the health checks of all controllers. A controller that another process runs is healthy.
func (c *Controllers) Checks() []health.Check {
	var all []health.Check
	for _, m := range c.Manager.Checks() {
		all = append(all, health.Check{Name: m.Name, Live: true, Ask: func(ctx context.Context) error {
			if c.elector != nil && !c.elector.Leading() {
				return nil
			}
			return m.Check(ctx)
		}})
	}
	for _, s := range c.always {
		all = append(all, health.Check{Name: s.Name(), Ask: s.Check})
	}
	return all
}
