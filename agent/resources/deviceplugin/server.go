package deviceplugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"monopod/agent/resources/plugins"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// socketName is the name of the socket in Config.Dir at which plugins register.
const socketName = "kubelet.sock"

// serve serves registrations until ctx ends.
func (m *Manager) serve(ctx context.Context) error {
	if err := os.MkdirAll(m.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	if err := removeSockets(m.cfg.Dir); err != nil {
		m.log.Warn("failed to remove sockets of earlier device plugins", zap.Error(err))
	}
	l, err := m.cfg.Listen(filepath.Join(m.cfg.Dir, socketName))
	if err == nil {
		err = plugins.Serve(ctx, l, m.guard, "device plugin",
			func(r grpc.ServiceRegistrar) { plugin.RegisterRegistrationServer(r, registration{m: m}) })
	}
	if err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	return nil
}

// registration implements the Registration service.
type registration struct {
	plugin.UnimplementedRegistrationServer
	m *Manager
}

// Register registers a plugin, whose socket must already exist.
func (r registration) Register(ctx context.Context, req *plugin.RegisterRequest) (*plugin.Empty, error) {
	m := r.m
	if req.Version != plugin.Version {
		return nil, r.refuse(req.ResourceName,
			"requested API version %q is not supported by kubelet. Supported version is %q", req.Version,
			plugin.SupportedVersions)
	}
	if !Extended(req.ResourceName) {
		return nil, r.refuse(req.ResourceName, "the ResourceName %q is invalid", req.ResourceName)
	}
	if req.Endpoint == "" || req.Endpoint != filepath.Base(req.Endpoint) || req.Endpoint == socketName {
		return nil, r.refuse(req.ResourceName, "the endpoint %q is not the name of a socket in %s", req.Endpoint, m.cfg.Dir)
	}
	m.metrics.registrations.WithLabelValues(req.ResourceName).Inc()
	if _, err := m.connect(ctx, req.ResourceName, filepath.Join(m.cfg.Dir, req.Endpoint), req.Options); err != nil {
		m.log.Warn("failed to connect to a device plugin", zap.String("resource", req.ResourceName), zap.Error(err))
		return nil, err
	}
	return &plugin.Empty{}, nil
}

func (r registration) refuse(resource, format string, args ...any) error {
	err := status.Errorf(codes.InvalidArgument, format, args...)
	r.m.log.Warn("device plugin rejected", zap.String("resource", resource), zap.Error(err))
	return err
}

// Welcome is the plugins.Handler of device plugins.
func (m *Manager) Welcome(life, ctx context.Context, p plugins.Plugin) error {
	switch {
	case !slices.Contains(p.Versions, plugin.Version):
		return fmt.Errorf("requested API versions %q are not supported by kubelet. Supported version is %q", p.Versions,
			plugin.SupportedVersions)
	case !Extended(p.Name):
		return fmt.Errorf("the ResourceName %q is invalid", p.Name)
	}
	m.metrics.registrations.WithLabelValues(p.Name).Inc()
	e, err := m.connect(ctx, p.Name, p.Socket, nil)
	if err == nil {
		context.AfterFunc(life, e.stop)
	}
	return err
}
