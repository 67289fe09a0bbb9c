// Package plugin is a device plugin for tests. It implements the device plugin API (v1beta1) over Unix sockets.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	reg "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"monopod/testdata/deviceplugin/sockets"
)

// Config configures a Plugin. Dir, Name, Resource and Devices are required.
type Config struct {
	Dir      string // folder of the sockets
	Name     string // name of the plugin's socket in Dir
	Resource string
	Devices  []*api.Device
	// Watched: the plugin does not register, but the node finds its socket in Dir.
	Watched bool
	Options *api.DevicePluginOptions
	// Mount is a folder on the host that containers get at /testdev; empty: none.
	Mount string
	CDI   string // prefix of the names of CDI devices; empty: none
	// Prefer answers GetPreferredAllocation.
	Prefer func(*api.ContainerPreferredAllocationRequest) []string
	// Refuse is the error of Allocate and PreStartContainer; nil: none.
	Refuse func(call string, ids []string) error
	// Listen and Dial open Unix sockets; nil: those of the host.
	Listen func(path string) (net.Listener, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)
}

// Plugin serves one resource.
type Plugin struct {
	api.UnimplementedDevicePluginServer
	reg.UnimplementedRegistrationServer
	cfg Config

	mu           sync.Mutex // guards devices, news and calls
	devices      []*api.Device
	news         chan struct{} // closed and replaced when devices change
	calls        []string
	registration chan *reg.RegistrationStatus
}

// New returns a plugin; Serve runs it.
func New(cfg Config) *Plugin {
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	if cfg.Options == nil {
		cfg.Options = &api.DevicePluginOptions{}
	}
	return &Plugin{cfg: cfg, devices: cfg.Devices, news: make(chan struct{}),
		registration: make(chan *reg.RegistrationStatus, 9)}
}

// Devices returns healthy devices with these IDs.
func Devices(ids ...string) []*api.Device {
	var out []*api.Device
	for _, id := range ids {
		out = append(out, &api.Device{ID: id, Health: api.Healthy})
	}
	return out
}

// At returns a healthy device on these NUMA nodes.
func At(id string, nodes ...int64) *api.Device {
	d := &api.Device{ID: id, Health: api.Healthy, Topology: &api.TopologyInfo{}}
	for _, n := range nodes {
		d.Topology.Nodes = append(d.Topology.Nodes, &api.NUMANode{ID: n})
	}
	return d
}

// Socket returns the path of the plugin's socket.
func (p *Plugin) Socket() string { return filepath.Join(p.cfg.Dir, p.cfg.Name) }

// Serve listens and registers, and serves until ctx ends.
func (p *Plugin) Serve(ctx context.Context) error {
	l, err := sockets.Replace(p.Socket(), p.cfg.Listen)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	api.RegisterDevicePluginServer(s, p)
	if p.cfg.Watched {
		reg.RegisterRegistrationServer(s, p)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if !p.cfg.Watched {
		err = p.Register(ctx)
	}
	if err == nil {
		<-ctx.Done()
	}
	s.Stop()
	return errors.Join(err, <-served)
}

// Register registers the plugin with the node. The plugin must be serving.
func (p *Plugin) Register(ctx context.Context) error {
	return p.RegisterAs(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: p.cfg.Name, ResourceName: p.cfg.Resource, Options: p.cfg.Options,
	})
}

// RegisterAs sends a registration request to the node.
func (p *Plugin) RegisterAs(ctx context.Context, req *api.RegisterRequest) error {
	conn, err := grpc.NewClient("passthrough:///kubelet", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return p.cfg.Dial(ctx, filepath.Join(p.cfg.Dir, "kubelet.sock"))
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, req)
	return err
}

// Set replaces the devices.
func (p *Plugin) Set(devices []*api.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = devices
	close(p.news)
	p.news = make(chan struct{})
}

// Calls returns the calls so far: "METHOD ID,ID".
func (p *Plugin) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Registration receives the registration status of a watched plugin.
func (p *Plugin) Registration() <-chan *reg.RegistrationStatus { return p.registration }

func (p *Plugin) called(call string, ids []string) error {
	p.mu.Lock()
	p.calls = append(p.calls, call+" "+strings.Join(ids, ","))
	p.mu.Unlock()
	if p.cfg.Refuse != nil {
		return p.cfg.Refuse(call, ids)
	}
	return nil
}

// GetDevicePluginOptions implements the API.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return p.cfg.Options, nil
}

// ListAndWatch implements the API.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		devices, news := p.devices, p.news
		p.mu.Unlock()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-news:
		}
	}
}

// GetPreferredAllocation implements the API.
func (p *Plugin) GetPreferredAllocation(_ context.Context,
	req *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	out := &api.PreferredAllocationResponse{}
	for _, c := range req.ContainerRequests {
		err := p.called("GetPreferredAllocation", c.AvailableDeviceIDs)
		if err != nil || p.cfg.Prefer == nil {
			return out, err
		}
		out.ContainerResponses = append(out.ContainerResponses,
			&api.ContainerPreferredAllocationResponse{DeviceIDs: p.cfg.Prefer(c)})
	}
	return out, nil
}

// Allocate implements the API. Containers get the variable TESTDEV with the IDs, /dev/testdev, an annotation, the mount
// and the CDI devices.
func (p *Plugin) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	out := &api.AllocateResponse{}
	for _, c := range req.ContainerRequests {
		if err := p.called("Allocate", c.DevicesIds); err != nil {
			return nil, err
		}
		ids := strings.Join(c.DevicesIds, ",")
		answer := &api.ContainerAllocateResponse{
			Envs:        map[string]string{"TESTDEV": ids},
			Devices:     []*api.DeviceSpec{{ContainerPath: "/dev/testdev", HostPath: "/dev/null", Permissions: "rw"}},
			Annotations: map[string]string{"test.monopod.local/devices": ids},
		}
		if p.cfg.Mount != "" {
			answer.Mounts = []*api.Mount{{ContainerPath: "/testdev", HostPath: p.cfg.Mount, ReadOnly: true}}
		}
		for _, id := range c.DevicesIds {
			if p.cfg.CDI != "" {
				answer.CdiDevices = append(answer.CdiDevices, &api.CDIDevice{Name: p.cfg.CDI + id})
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, answer)
	}
	return out, nil
}

// PreStartContainer implements the API.
func (p *Plugin) PreStartContainer(_ context.Context,
	req *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, p.called("PreStartContainer", req.DevicesIds)
}

// GetInfo implements the registration of watched plugins.
func (p *Plugin) GetInfo(context.Context, *reg.InfoRequest) (*reg.PluginInfo, error) {
	return &reg.PluginInfo{Type: reg.DevicePlugin, Name: p.cfg.Resource, SupportedVersions: []string{api.Version}}, nil
}

// NotifyRegistrationStatus implements the registration of watched plugins.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context,
	s *reg.RegistrationStatus) (*reg.RegistrationStatusResponse, error) {
	select {
	case p.registration <- s:
		return &reg.RegistrationStatusResponse{}, nil
	default:
		return nil, fmt.Errorf("too many registrations: %v", s)
	}
}
