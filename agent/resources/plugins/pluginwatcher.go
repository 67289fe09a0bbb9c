// Package plugins watches a folder for the sockets of plugins, registers each plugin with the handler of its type
// (kubelet's plugin registration API, v1), and serves gRPC on Unix sockets.
package plugins

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	reg "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	"monopod/agent/host"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/unixsocket"
)

// Plugin is a plugin that wants to register.
type Plugin struct {
	Name     string
	Endpoint string // as the plugin named it; empty: it serves where it registers
	Socket   string // at which it serves on this machine
	Versions []string
}

// Handler adds a plugin of one type, or returns why it is rejected. ctx is for the registration; life ends when the
// plugin's socket disappears.
type Handler func(life, ctx context.Context, p Plugin) error

// Watcher registers plugins. All fields are required.
type Watcher struct {
	Dir      string
	Handlers map[string]Handler // by type
	Dial     func(ctx context.Context, path string) (net.Conn, error)
	Clock    clock.Clock
	Log      *zap.Logger
	Guard    *guard.Guard
}

// Timeout is how long a registering plugin may take to answer (upstream: 10 s).
const Timeout = 10 * time.Second

const (
	// A new socket is tried maxTries times, because its plugin may not listen yet, or what it was rejected for may end:
	// again after firstRetryDelay, doubled each time. A plugin that starts later recreates its socket.
	maxTries        = 8
	firstRetryDelay = 500 * time.Millisecond
)

// Run registers the plugins whose sockets exist or appear in the folder, and drops them when the sockets disappear,
// until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	w.Guard.Keep(ctx, w.Clock, "plugins", func() {
		f := registry{Watcher: w, stops: map[string]context.CancelFunc{}}
		err := f.watch(ctx)
		for _, stop := range f.stops {
			stop()
		}
		f.tries.Wait()
		if ctx.Err() == nil {
			w.Log.Error("failed to watch for plugins", zap.String("folder", w.Dir), zap.Error(err))
		}
	})
}

// registry contains the registered plugins of a Watcher. Only one goroutine uses it.
type registry struct {
	*Watcher
	stops map[string]context.CancelFunc // by path of the socket
	tries sync.WaitGroup
}

// watch returns when ctx ends or the folder cannot be watched.
func (f *registry) watch(ctx context.Context) error {
	if err := os.MkdirAll(f.Dir, 0o750); err != nil {
		return err
	}
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watch.Close()
	if err := watch.Add(f.Dir); err != nil {
		return err
	}
	f.scan(ctx)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-watch.Errors: // events are lost
			f.Log.Warn("failed to watch for plugins, reading the folder again", zap.Error(err))
			f.scan(ctx)
		case ev := <-watch.Events:
			gone := ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)
			switch {
			case gone && ev.Name == filepath.Clean(f.Dir):
				return fmt.Errorf("watch %s: %w", f.Dir, os.ErrNotExist)
			case gone:
				f.deregister(ev.Name)
			case ev.Has(fsnotify.Create):
				f.register(ctx, ev.Name)
			}
		}
	}
}

// scan registers the plugins in the folder.
func (f *registry) scan(ctx context.Context) {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		f.Log.Warn("failed to watch for plugins", zap.Error(err))
	}
	for _, e := range entries {
		if path := filepath.Join(f.Dir, e.Name()); f.stops[path] == nil {
			f.register(ctx, path)
		}
	}
}

// register starts to register the plugin at a socket.
func (f *registry) register(ctx context.Context, path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 || strings.HasPrefix(filepath.Base(path), ".") {
		return
	}
	f.deregister(path)
	ctx, cancel := context.WithCancel(ctx)
	f.stops[path] = cancel
	f.Guard.Go(&f.tries, "plugin", func() { f.discover(ctx, path) })
}

// deregister stops the plugin whose socket has disappeared.
func (f *registry) deregister(path string) {
	if stop := f.stops[path]; stop != nil {
		stop()
		delete(f.stops, path)
	}
}

// discover tries a socket until its plugin is registered.
func (f *registry) discover(ctx context.Context, path string) {
	retry := backoff.Retry{First: firstRetryDelay, Most: firstRetryDelay << maxTries}
	for range maxTries {
		err := f.handshake(ctx, path)
		if err == nil || ctx.Err() != nil {
			return
		}
		f.Log.Warn("failed to register a plugin", zap.String("socket", path), zap.Error(err))
		if !retry.Wait(ctx, f.Clock) {
			return
		}
	}
}

// handshake registers the plugin at a socket and notifies the plugin of the result; ctx ends when the socket
// disappears.
func (f *registry) handshake(ctx context.Context, path string) error {
	if err := unixsocket.Check(path); err != nil {
		return err
	}
	conn, err := Open(path, f.Dial, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	who := reg.NewRegistrationClient(conn)
	short, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	info, err := who.GetInfo(short, &reg.InfoRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return err
	}
	answer := &reg.RegistrationStatus{PluginRegistered: true}
	rejected := f.handle(ctx, short, path, info)
	if rejected != nil {
		answer.PluginRegistered, answer.Error = false, rejected.Error()
	}
	late, cancel := context.WithTimeout(ctx, Timeout) // handle may have used the other one up
	defer cancel()
	if _, err := who.NotifyRegistrationStatus(late, answer); err != nil {
		f.Log.Warn("failed to notify a plugin of its registration", zap.String("socket", path), zap.Error(err))
	}
	return rejected
}

// handle passes the plugin to the handler of its type.
func (f *registry) handle(life, ctx context.Context, path string, info *reg.PluginInfo) error {
	handle := f.Handlers[info.Type]
	if handle == nil {
		return fmt.Errorf("no handler registered for plugin type: %s at socket %s", info.Type, path)
	}
	if info.Endpoint != "" {
		path = host.KubeletPath(info.Endpoint, filepath.Dir(f.Dir))
	}
	return handle(life, ctx,
		Plugin{Name: info.Name, Endpoint: info.Endpoint, Socket: path, Versions: info.SupportedVersions})
}
