package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Slices is a client of systemd. It connects on first use, and again after the connection broke, which happens when
// systemd re-executes itself.
type Slices struct {
	dial func(context.Context) (*dbus.Conn, error)

	mu   sync.Mutex // guards the fields below
	conn *dbus.Conn
}

var _ Units = (*Slices)(nil)

// NewSlices returns a client of this machine's systemd. dial connects to it; nil: through the system bus or, for root,
// systemd's private socket.
func NewSlices(dial func(context.Context) (*dbus.Conn, error)) *Slices {
	if dial == nil {
		dial = dbus.NewWithContext
	}
	return &Slices{dial: dial}
}

// Close ends the connection.
func (m *Slices) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		m.conn.Close()
		m.conn = nil
	}
}

// jobTimeout is the timeout of a job (upstream: 30 s).
const jobTimeout = 30 * time.Second

// Error names of systemd.
const (
	unitExists = "org.freedesktop.systemd1.UnitExists"
	noSuchUnit = "org.freedesktop.systemd1.NoSuchUnit"
)

// Start implements Units.
func (m *Slices) Start(slice string, properties []Property) error {
	err := m.job("start", slice, func(ctx context.Context, conn *dbus.Conn, done chan<- string) error {
		_, err := conn.StartTransientUnitContext(ctx, slice, "replace", toDBus(properties), done)
		return err
	})
	if isDBusError(err, unitExists) {
		return m.Set(slice, slices.DeleteFunc(slices.Clone(properties), func(p Property) bool {
			return p.Name == "DefaultDependencies" || p.Name == "Wants" // cannot be set on a running slice
		}))
	}
	return err
}

// Set implements Units.
func (m *Slices) Set(slice string, properties []Property) error {
	ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
	defer cancel()
	return wrapError("set", slice, m.call(func(conn *dbus.Conn) error {
		return conn.SetUnitPropertiesContext(ctx, slice, true, toDBus(properties)...)
	}))
}

// Stop implements Units.
func (m *Slices) Stop(slice string) error {
	err := m.job("stop", slice, func(ctx context.Context, conn *dbus.Conn, done chan<- string) error {
		_, err := conn.StopUnitContext(ctx, slice, "replace", done)
		return err
	})
	if isDBusError(err, noSuchUnit) {
		return nil
	}
	return err
}

// job starts a job of systemd and waits until it is done.
func (m *Slices) job(verb, slice string, start func(context.Context, *dbus.Conn, chan<- string) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
	defer cancel()
	done := make(chan string, 1)
	if err := m.call(func(conn *dbus.Conn) error { return start(ctx, conn, done) }); err != nil {
		return wrapError(verb, slice, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return wrapError(verb, slice, errors.New(result))
		}
		return nil
	case <-ctx.Done():
		return wrapError(verb, slice, ctx.Err())
	}
}

// call calls f with a connection. If the connection was broken, it calls f again with a new one: after a restart of
// systemd, a connection seems to be open for a moment.
func (m *Slices) call(f func(*dbus.Conn) error) error {
	conn, err := m.connect()
	if err != nil {
		return err
	}
	if err = f(conn); !broken(err) {
		return err
	}
	conn.Close()
	if conn, err = m.connect(); err != nil {
		return err
	}
	return f(conn)
}

// broken reports whether a call failed because the connection was closed.
func broken(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, godbus.ErrClosed)
}

func (m *Slices) connect() (*dbus.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil && m.conn.Connected() {
		return m.conn, nil
	}
	if m.conn != nil {
		m.conn.Close()
	}
	// The context of the caller is not used: the connection outlives the call.
	conn, err := m.dial(context.Background())
	if err != nil {
		m.conn = nil
		return nil, fmt.Errorf("connect to systemd: %w", err)
	}
	m.conn = conn
	return conn, nil
}

func wrapError(verb, slice string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("systemd: %s %s: %w", verb, slice, err)
}

// isDBusError reports whether err is the D-Bus error of that name.
func isDBusError(err error, name string) bool {
	var answer godbus.Error
	return errors.As(err, &answer) && answer.Name == name
}

func toDBus(properties []Property) []dbus.Property {
	out := make([]dbus.Property, 0, len(properties))
	for _, p := range properties {
		out = append(out, dbus.Property{Name: p.Name, Value: godbus.MakeVariant(p.Value)})
	}
	return out
}
