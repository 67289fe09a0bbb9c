package deviceplugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"monopod/agent/node/socket"
	"monopod/apiserver/process/backoff"
	"monopod/apiserver/process/folder"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	reg "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	// discoverTries is how often a new socket is tried, because its plugin may not
	// listen yet: after half a second, then twice as long each time. A plugin that
	// starts later recreates its socket.
	discoverTries = 8
	discoverPause = 500 * time.Millisecond
)

// watchFolder registers the plugins whose sockets exist or appear in the folder
// Watched, and drops them when the sockets disappear.
func (m *Manager) watchFolder(ctx context.Context) {
	f := found{m: m, stops: map[string]context.CancelFunc{}}
	err := f.follow(ctx)
	f.wait()
	if ctx.Err() == nil {
		m.log.Error("device plugins are not looked for", zap.String("folder", m.cfg.Watched), zap.Error(err))
	}
}

// found maps the sockets in the folder to the functions that stop their plugins. Only
// one goroutine uses it.
type found struct {
	m     *Manager
	stops map[string]context.CancelFunc
	tries sync.WaitGroup
}

func (f *found) wait() {
	for _, stop := range f.stops {
		stop()
	}
	f.tries.Wait()
}

// follow returns when ctx ends or the folder cannot be watched.
func (f *found) follow(ctx context.Context) error {
	if err := os.MkdirAll(f.m.cfg.Watched, 0o750); err != nil {
		return err
	}
	watch, err := folder.Watch(f.m.cfg.Watched)
	if err != nil {
		return err
	}
	defer watch.Close()
	stop := context.AfterFunc(ctx, func() { watch.Close() })
	defer stop()
	f.look(ctx)
	for {
		changes, err := watch.Next()
		for _, c := range changes {
			switch {
			case c.Lost:
				f.look(ctx)
			case c.Gone:
				f.drop(c.Path)
			default:
				f.take(ctx, c.Path)
			}
		}
		if err != nil {
			return err
		}
	}
}

// look registers the plugins in the folder.
func (f *found) look(ctx context.Context) {
	entries, err := os.ReadDir(f.m.cfg.Watched)
	if err != nil {
		f.m.log.Warn("device plugins are not looked for", zap.Error(err))
	}
	for _, e := range entries {
		if path := filepath.Join(f.m.cfg.Watched, e.Name()); f.stops[path] == nil {
			f.take(ctx, path)
		}
	}
}

// take registers the plugin behind a socket.
func (f *found) take(ctx context.Context, path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 || strings.HasPrefix(filepath.Base(path), ".") {
		return
	}
	f.drop(path)
	ctx, cancel := context.WithCancel(ctx)
	f.stops[path] = cancel
	f.m.guard.Go(&f.tries, "device plugin", func() { f.discover(ctx, path) })
}

// drop drops the plugin whose socket has disappeared.
func (f *found) drop(path string) {
	if stop := f.stops[path]; stop != nil {
		stop()
		delete(f.stops, path)
	}
}

// discover tries a socket until its plugin answers.
func (f *found) discover(ctx context.Context, path string) {
	retry := backoff.Retry{First: discoverPause, Most: discoverPause << discoverTries}
	for range discoverTries {
		err := f.introduce(ctx, path)
		if err == nil || ctx.Err() != nil {
			return
		}
		f.m.log.Warn("failed to register a plugin", zap.String("socket", path), zap.Error(err))
		if !retry.Wait(ctx, f.m.cfg.Clock) {
			return
		}
	}
}

// introduce registers the plugin behind a socket and notifies it; ctx ends with the
// socket.
func (f *found) introduce(ctx context.Context, path string) error {
	if err := socket.Check(path); err != nil {
		return err
	}
	conn, err := f.m.open(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	who := reg.NewRegistrationClient(conn)
	short, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	info, err := who.GetInfo(short, &reg.InfoRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return err
	}
	answer := &reg.RegistrationStatus{PluginRegistered: true}
	if err := f.welcome(ctx, short, path, info); err != nil {
		answer.PluginRegistered, answer.Error = false, err.Error()
		f.m.log.Warn("plugin rejected", zap.String("socket", path), zap.Error(err))
	}
	if _, err := who.NotifyRegistrationStatus(short, answer); err != nil {
		f.m.log.Warn("failed to notify a plugin of its registration", zap.String("socket", path), zap.Error(err))
	}
	return nil
}

// welcome validates the plugin and connects to it for the duration of life.
func (f *found) welcome(life, ctx context.Context, path string, info *reg.PluginInfo) error {
	switch {
	case info.Type != reg.DevicePlugin:
		return fmt.Errorf("no handler registered for plugin type: %s at socket %s", info.Type, path)
	case !slices.Contains(info.SupportedVersions, plugin.Version):
		return fmt.Errorf("requested API versions %q are not supported by kubelet. Supported version is %q", info.SupportedVersions, plugin.SupportedVersions)
	case !Extended(info.Name):
		return fmt.Errorf("the ResourceName %q is invalid", info.Name)
	}
	if info.Endpoint != "" {
		path = info.Endpoint
	}
	f.m.metrics.registrations.WithLabelValues(info.Name).Inc()
	e, err := f.m.connect(ctx, info.Name, path, nil)
	if err == nil {
		context.AfterFunc(life, e.stop)
	}
	return err
}
