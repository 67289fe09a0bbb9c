// Package driver is a DRA driver for tests. It implements the DRA plugin API (v1 or v1beta1) over a Unix socket in the
// folder that the node watches.
package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	v1 "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/kubelet/pkg/apis/dra/v1beta1"
	reg "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"monopod/testdata/deviceplugin/sockets"
)

// Config configures a Driver. Dir and Name are required.
type Config struct {
	Dir  string // folder of the socket, which the node watches
	Name string // name of the driver
	// Devices returns the pool and the allocated devices of a claim.
	Devices func(ctx context.Context, namespace, claim string) (pool string, devices []Device, err error)
	// CDI is the folder for CDI specifications; empty: devices have no CDI names.
	CDI string
	// Old: the driver serves only v1beta1.
	Old bool
	// Health sends reports of the devices' health, the first one at once; nil: the driver reports no health.
	Health <-chan []*health.DeviceHealth
	// Refuse returns the error of a call for a claim; nil: no errors.
	Refuse func(call, claim string) error
	// Listen opens the Unix socket; nil: on the host.
	Listen func(path string) (net.Listener, error)
}

// Device is a device that was allocated for a request.
type Device struct{ Request, Name string }

// Driver serves the DRA plugin API.
type Driver struct {
	v1.UnimplementedDRAPluginServer
	reg.UnimplementedRegistrationServer
	health.UnimplementedDRAResourceHealthServer
	cfg Config

	mu    sync.Mutex // guards calls
	calls []string
}

// New returns a driver; Serve runs it.
func New(cfg Config) *Driver {
	return &Driver{cfg: cfg}
}

// Socket returns the path of the driver's socket.
func (d *Driver) Socket() string { return filepath.Join(d.cfg.Dir, d.cfg.Name+".sock") }

// Serve serves until ctx ends.
func (d *Driver) Serve(ctx context.Context) error {
	if err := os.MkdirAll(d.cfg.Dir, 0o750); err != nil { // the node may not have started yet
		return err
	}
	l, err := sockets.Replace(d.Socket(), d.cfg.Listen)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	reg.RegisterRegistrationServer(s, d)
	if d.cfg.Old {
		v1beta1.RegisterDRAPluginServer(s, v1beta1.V1ServerWrapper{DRAPluginServer: d})
	} else {
		v1.RegisterDRAPluginServer(s, d)
	}
	if d.cfg.Health != nil {
		health.RegisterDRAResourceHealthServer(s, d)
	}
	defer context.AfterFunc(ctx, s.Stop)()
	err = s.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Versions returns the names of the services that the driver registers.
func (d *Driver) Versions() []string {
	if d.cfg.Old {
		return []string{v1beta1.DRAPluginService}
	}
	if d.cfg.Health != nil {
		return []string{v1.DRAPluginService, v1beta1.DRAPluginService, health.DRAResourceHealthService}
	}
	return []string{v1.DRAPluginService, v1beta1.DRAPluginService}
}

// NodeWatchResources implements the API of health reports.
func (d *Driver) NodeWatchResources(_ *health.NodeWatchResourcesRequest,
	stream health.DRAResourceHealth_NodeWatchResourcesServer) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case devices, more := <-d.cfg.Health:
			if !more {
				return errors.New("no more reports")
			}
			if err := stream.Send(&health.NodeWatchResourcesResponse{Devices: devices}); err != nil {
				return err
			}
		}
	}
}

// GetInfo implements the registration.
func (d *Driver) GetInfo(context.Context, *reg.InfoRequest) (*reg.PluginInfo, error) {
	return &reg.PluginInfo{Type: reg.DRAPlugin, Name: d.cfg.Name, Endpoint: d.Socket(), SupportedVersions: d.Versions()},
		nil
}

// NotifyRegistrationStatus implements the registration.
func (d *Driver) NotifyRegistrationStatus(_ context.Context,
	s *reg.RegistrationStatus) (*reg.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		fmt.Fprintln(os.Stderr, "not registered:", s.Error)
	}
	return &reg.RegistrationStatusResponse{}, nil
}

// Calls returns the calls so far: "prepare NAME" and "unprepare NAME".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

func (d *Driver) called(call string, c *v1.Claim) error {
	d.mu.Lock()
	d.calls = append(d.calls, call+" "+c.Name)
	d.mu.Unlock()
	if d.cfg.Refuse != nil {
		return d.cfg.Refuse(call, c.Name)
	}
	return nil
}

// NodePrepareResources implements the API. For each device, containers get a variable TESTDRA_NAME and /dev/NAME.
func (d *Driver) NodePrepareResources(ctx context.Context,
	req *v1.NodePrepareResourcesRequest) (*v1.NodePrepareResourcesResponse, error) {
	out := &v1.NodePrepareResourcesResponse{Claims: map[string]*v1.NodePrepareResourceResponse{}}
	for _, c := range req.Claims {
		devices, err := d.prepare(ctx, c)
		out.Claims[c.Uid] = &v1.NodePrepareResourceResponse{Devices: devices}
		if err != nil {
			out.Claims[c.Uid].Error = err.Error()
		}
	}
	return out, nil
}

func (d *Driver) prepare(ctx context.Context, c *v1.Claim) (out []*v1.Device, err error) {
	if err := d.called("prepare", c); err != nil {
		return nil, err
	}
	pool, devices, err := d.cfg.Devices(ctx, c.Namespace, c.Name)
	if err != nil {
		return nil, err
	}
	var specs []map[string]any
	for _, one := range devices {
		prepared := &v1.Device{PoolName: pool, DeviceName: one.Name, RequestNames: []string{one.Request}}
		if d.cfg.CDI != "" {
			prepared.CdiDeviceIds = []string{d.kind() + "=" + c.Uid + "-" + one.Name}
		}
		out = append(out, prepared)
		specs = append(specs, map[string]any{"name": c.Uid + "-" + one.Name, "containerEdits": map[string]any{
			"env":         []string{"TESTDRA_" + one.Name + "=" + one.Request},
			"deviceNodes": []any{map[string]any{"path": "/dev/" + one.Name, "hostPath": "/dev/null"}},
		}})
	}
	if d.cfg.CDI == "" {
		return out, nil
	}
	text, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": d.kind(), "devices": specs})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.cfg.CDI, 0o750); err != nil {
		return nil, err
	}
	return out, os.WriteFile(d.file(c), text, 0o600)
}

func (d *Driver) kind() string { return d.cfg.Name + "/device" }

func (d *Driver) file(c *v1.Claim) string {
	return filepath.Join(d.cfg.CDI, d.cfg.Name+"-"+c.Uid+".json")
}

// NodeUnprepareResources implements the API.
func (d *Driver) NodeUnprepareResources(_ context.Context,
	req *v1.NodeUnprepareResourcesRequest) (*v1.NodeUnprepareResourcesResponse, error) {
	out := &v1.NodeUnprepareResourcesResponse{Claims: map[string]*v1.NodeUnprepareResourceResponse{}}
	for _, c := range req.Claims {
		out.Claims[c.Uid] = &v1.NodeUnprepareResourceResponse{}
		err := d.called("unprepare", c)
		if err == nil && d.cfg.CDI != "" {
			err = os.RemoveAll(d.file(c))
		}
		if err != nil {
			out.Claims[c.Uid].Error = err.Error()
		}
	}
	return out, nil
}
