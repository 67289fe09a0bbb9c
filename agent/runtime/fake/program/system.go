package program

import (
	"context"
	"io/fs"
	"net"
	"os"
	"runtime"
	"time"
)

// System is the machine on which the program runs.
type System interface {
	ReadFile(name string) ([]byte, error)
	ReadDir(name string) (names []string, err error)
	Stat(name string) (fs.FileInfo, error)
	// WriteFile creates or truncates a file; its directory must exist.
	WriteFile(name string, data []byte) error
	Listen(network, address string) (net.Listener, error)
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	// Load uses CPU until release is called.
	Load(millicores int64) (release func(), err error)
	// Allocate takes memory until release is called.
	Allocate(bytes int64) (release func(), err error)
}

// Host is the real machine.
type Host struct{}

var _ System = Host{}

// ReadFile implements System.
func (Host) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

// Stat implements System.
func (Host) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// WriteFile implements System.
func (Host) WriteFile(name string, data []byte) error { return os.WriteFile(name, data, 0o644) }

// Listen implements System.
func (Host) Listen(network, address string) (net.Listener, error) {
	return net.Listen(network, address)
}

// ReadDir implements System.
func (Host) ReadDir(name string) (names []string, err error) {
	entries, err := os.ReadDir(name)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}

// Dial implements System.
func (Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// loadPeriod is the period of which Load is busy for a part.
const loadPeriod = 10 * time.Millisecond

// Load uses at most one core.
func (Host) Load(millicores int64) (func(), error) {
	busy := min(loadPeriod*time.Duration(millicores)/1000, loadPeriod)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		pause := time.NewTicker(loadPeriod)
		defer pause.Stop()
		for {
			for began := time.Now(); time.Since(began) < busy; {
			}
			select {
			case <-stop:
				return
			case <-pause.C:
			}
		}
	}()
	return func() { close(stop); <-ended }, nil
}

// Allocate touches every page, because the kernel counts only those.
func (Host) Allocate(bytes int64) (func(), error) {
	memory := make([]byte, bytes)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return func() { runtime.KeepAlive(memory) }, nil
}
