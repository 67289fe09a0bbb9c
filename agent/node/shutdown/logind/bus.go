package logind

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
)

// Names of logind on the bus.
const (
	name               = "org.freedesktop.login1"
	path               = dbus.ObjectPath("/org/freedesktop/login1")
	iface              = name + ".Manager"
	prepareForShutdown = "PrepareForShutdown"

	busName          = "org.freedesktop.DBus"
	nameOwnerChanged = "NameOwnerChanged"
)

// callTimeout is the timeout of a call: logind may have to start first.
const callTimeout = 10 * time.Second

// connect opens a private connection to the bus. The end of ctx cancels connecting, not the connection.
func connect(ctx context.Context, address string) (*dbus.Conn, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	options := []dbus.ConnOption{
		dbus.WithContext(life), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()), // in the order of arrival
		dbus.WithAuth(dbus.AuthExternal(strconv.Itoa(os.Getuid()))), // does not look up the user's name
	}
	if address != "" {
		return dbus.Connect(address, options...)
	}
	return dbus.ConnectSystemBus(options...)
}

// manager calls logind.
type manager struct{ conn *dbus.Conn }

func (m manager) object() dbus.BusObject { return m.conn.Object(name, path) }

// listen returns signals of a shutdown, of its cancellation, and of a restart of logind. The channel is closed
// when the connection ends.
func (m manager) listen(ctx context.Context) (<-chan *dbus.Signal, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	news := make(chan *dbus.Signal, 1)
	m.conn.Signal(news)
	err := m.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(name), dbus.WithMatchObjectPath(path),
		dbus.WithMatchInterface(iface), dbus.WithMatchMember(prepareForShutdown))
	if err == nil {
		err = m.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(busName), dbus.WithMatchMember(nameOwnerChanged),
			dbus.WithMatchArg(0, name), dbus.WithMatchArg(1, ""))
	}
	if err != nil {
		return nil, fmt.Errorf("listen to logind: %w", err)
	}
	return news, nil
}

// shutdownState returns a function that reports whether the machine is shutting down: from the signal, or by a call
// to a logind that has just started; nil if the signal is about something else, such as the bus' own signals.
func (m manager) shutdownState(s *dbus.Signal) func(context.Context) (bool, error) {
	switch {
	case s.Name == iface+"."+prepareForShutdown && len(s.Body) == 1:
		if down, ok := s.Body[0].(bool); ok {
			return func(context.Context) (bool, error) { return down, nil }
		}
	case s.Name == busName+"."+nameOwnerChanged:
		return m.shuttingDown
	}
	return nil
}

// shuttingDown reports whether the machine is shutting down.
func (m manager) shuttingDown(ctx context.Context) (down bool, err error) {
	return down, m.property(ctx, "PreparingForShutdown", &down)
}

// maxDelay returns logind's InhibitDelayMaxSec.
func (m manager) maxDelay(ctx context.Context) (time.Duration, error) {
	var micros uint64
	err := m.property(ctx, "InhibitDelayMaxUSec", &micros)
	return time.Duration(micros) * time.Microsecond, err
}

func (m manager) property(ctx context.Context, name string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var v dbus.Variant
	if err := m.object().CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, iface, name).Store(
		&v); err != nil {
		return fmt.Errorf("read %s of logind: %w", name, err)
	}
	if err := v.Store(to); err != nil {
		return fmt.Errorf("read %s of logind: %w", name, err)
	}
	return nil
}

// inhibit takes an inhibitor, which delays shutdowns until the file is closed. It does not end with ctx, because an
// inhibitor that arrives later would never be released.
func (m manager) inhibit(ctx context.Context) (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	var fd dbus.UnixFD
	err := m.object().CallWithContext(ctx, iface+".Inhibit", 0, "shutdown", "monopod", "Pods need time to end",
		"delay").Store(&fd)
	if err != nil {
		return nil, fmt.Errorf("take an inhibitor of logind: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}
