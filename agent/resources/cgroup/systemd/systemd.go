// Package systemd makes slices through systemd's D-Bus interface.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"monopod/agent/resources/cgroup"
)

// Manager is systemd's own. The connection is made when it is first needed, and
// anew after it broke, which it does when systemd executes itself again.
type Manager struct {
	dial func(context.Context) (*dbus.Conn, error)

	mu   sync.Mutex // guards what follows
	conn *dbus.Conn
}

var _ cgroup.Units = (*Manager)(nil)

// New returns the manager of this machine. Dial makes a connection to it; nil: over
// the system's bus, or else, for root, systemd's own socket.
func New(dial func(context.Context) (*dbus.Conn, error)) *Manager {
	if dial == nil {
		dial = dbus.NewWithContext
	}
	return &Manager{dial: dial}
}

// Close ends the connection.
func (m *Manager) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		m.conn.Close()
		m.conn = nil
	}
}

// patience is how long systemd has for one job; upstream gives it 30 s, too.
const patience = 30 * time.Second

// What systemd says of units.
const (
	unitExists = "org.freedesktop.systemd1.UnitExists"
	noSuchUnit = "org.freedesktop.systemd1.NoSuchUnit"
)

// Start implements cgroup.Units.
func (m *Manager) Start(slice string, properties []cgroup.Property) error {
	err := m.job("start", slice, func(ctx context.Context, conn *dbus.Conn, done chan<- string) error {
		_, err := conn.StartTransientUnitContext(ctx, slice, "replace", toDBus(properties), done)
		return err
	})
	if is(err, unitExists) {
		return m.Set(slice, changeable(properties))
	}
	return err
}

// changeable are the properties that a slice which runs may be given.
func changeable(properties []cgroup.Property) []cgroup.Property {
	var out []cgroup.Property
	for _, p := range properties {
		if p.Name != "DefaultDependencies" && p.Name != "Wants" {
			out = append(out, p)
		}
	}
	return out
}

// Set implements cgroup.Units.
func (m *Manager) Set(slice string, properties []cgroup.Property) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := m.connect()
	if err == nil {
		err = conn.SetUnitPropertiesContext(ctx, slice, true, toDBus(properties)...)
	}
	return explain("set", slice, err)
}

// Stop implements cgroup.Units.
func (m *Manager) Stop(slice string) error {
	err := m.job("stop", slice, func(ctx context.Context, conn *dbus.Conn, done chan<- string) error {
		_, err := conn.StopUnitContext(ctx, slice, "replace", done)
		return err
	})
	if is(err, noSuchUnit) {
		return nil
	}
	return err
}

// job has systemd do something and waits until it is done.
func (m *Manager) job(verb, slice string, start func(context.Context, *dbus.Conn, chan<- string) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := m.connect()
	if err != nil {
		return explain(verb, slice, err)
	}
	done := make(chan string, 1)
	if err := start(ctx, conn, done); err != nil {
		return explain(verb, slice, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return explain(verb, slice, errors.New(result))
		}
		return nil
	case <-ctx.Done():
		return explain(verb, slice, ctx.Err())
	}
}

func (m *Manager) connect() (*dbus.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil && m.conn.Connected() {
		return m.conn, nil
	}
	if m.conn != nil {
		m.conn.Close()
	}
	// The connection outlives the call that needs it first.
	conn, err := m.dial(context.Background())
	if err != nil {
		m.conn = nil
		return nil, fmt.Errorf("connect to systemd: %w", err)
	}
	m.conn = conn
	return conn, nil
}

func explain(verb, slice string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("systemd: %s %s: %w", verb, slice, err)
}

// is reports whether systemd answered with that error.
func is(err error, name string) bool {
	var answer godbus.Error
	return errors.As(err, &answer) && answer.Name == name
}

func toDBus(properties []cgroup.Property) []dbus.Property {
	out := make([]dbus.Property, 0, len(properties))
	for _, p := range properties {
		out = append(out, dbus.Property{Name: p.Name, Value: godbus.MakeVariant(p.Value)})
	}
	return out
}
