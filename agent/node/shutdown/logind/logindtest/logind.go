// Package logindtest runs a private bus with a fake systemd-logind that never shuts anything down.
package logindtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	name  = "org.freedesktop.login1"
	path  = dbus.ObjectPath("/org/freedesktop/login1")
	iface = name + ".Manager"
)

// ErrNoDaemon means that this machine has no dbus-daemon.
var ErrNoDaemon = errors.New("there is no dbus-daemon on this machine: apt-get install dbus-daemon")

// Bus is a dbus-daemon. Start starts it again at the same Address after Stop.
type Bus struct {
	Address string
	config  string
	daemon  *exec.Cmd
}

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>%s</listen><auth>EXTERNAL</auth>
<policy context="default">
<allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>
</policy></busconfig>`

// StartBus starts a bus with its files in dir, whose path must be short. Stop ends it.
func StartBus(dir string) (*Bus, error) {
	b := &Bus{Address: "unix:path=" + filepath.Join(dir, "bus"), config: filepath.Join(dir, "bus.conf")}
	if err := os.WriteFile(b.config, fmt.Appendf(nil, busConfig, b.Address), 0o600); err != nil {
		return nil, err
	}
	return b, b.Start()
}

// Start starts the daemon, and waits until it answers.
func (b *Bus) Start() error {
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		return ErrNoDaemon
	}
	b.daemon = exec.Command(program, "--config-file", b.config, "--nofork", "--print-address")
	out, err := b.daemon.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.daemon.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Stop()
		return fmt.Errorf("dbus-daemon: %w", err)
	}
	return nil
}

// Stop ends the daemon and every connection to it.
func (b *Bus) Stop() {
	_ = b.daemon.Process.Kill()
	_ = b.daemon.Wait()
	_ = os.Remove(b.Address[len("unix:path="):])
}

// Logind is a fake systemd-logind on a bus.
type Logind struct {
	conn *dbus.Conn
	most time.Duration
	life sync.WaitGroup

	mu         sync.Mutex // guards the fields below
	down       bool
	inhibitors int      // inhibitors that are held
	arguments  []string // the arguments of each inhibitor
}

// Start starts a logind on the bus. most is its InhibitDelayMaxSec.
func Start(b *Bus, most time.Duration) (*Logind, error) {
	conn, err := dbus.Connect(b.Address)
	if err != nil {
		return nil, err
	}
	// Logind handles calls itself, because package dbus does not report when it has sent a reply with an inhibitor.
	calls := make(chan *dbus.Message, 100)
	l := &Logind{conn: conn, most: most}
	if _, err := conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	conn.Eavesdrop(calls)
	l.life.Go(func() {
		for m := range calls {
			if m.Type == dbus.TypeMethodCall {
				l.answer(m)
			}
		}
	})
	return l, nil
}

// Stop removes the logind from the bus.
func (l *Logind) Stop() {
	l.conn.Close()
	l.life.Wait()
}

// PowerOff announces a shutdown if down is true, like poweroff; otherwise it announces the cancellation.
func (l *Logind) PowerOff(down bool) error {
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
	return l.conn.Emit(path, iface+".PrepareForShutdown", down)
}

// Inhibitors returns the number of inhibitors that are held.
func (l *Logind) Inhibitors() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inhibitors
}

// InhibitorArguments returns the arguments of the inhibitors so far.
func (l *Logind) InhibitorArguments() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arguments
}

func (l *Logind) answer(m *dbus.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch member, _ := m.Headers[dbus.FieldMember].Value().(string); member {
	case "Inhibit":
		l.inhibit(m)
	case "Get":
		l.property(m)
	default:
		l.fail(m, "org.freedesktop.DBus.Error.UnknownMethod")
	}
}

// inhibit creates an inhibitor, unless a shutdown has started. It is held until every process has closed the write end
// of its pipe.
func (l *Logind) inhibit(m *dbus.Message) {
	if l.down {
		l.fail(m, "org.freedesktop.login1.OperationInProgress")
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		l.fail(m, "org.freedesktop.DBus.Error.NoMemory")
		return
	}
	l.inhibitors++
	l.arguments = append(l.arguments, fmt.Sprintf("%s of %s: %s (%s)", m.Body...))
	l.reply(m, dbus.TypeMethodReply, dbus.UnixFD(w.Fd()))
	w.Close()
	go func() { // returns when the holder closes its end
		_, _ = io.Copy(io.Discard, r)
		r.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.inhibitors--
	}()
}

func (l *Logind) property(m *dbus.Message) {
	switch m.Body[1] {
	case "PreparingForShutdown":
		l.reply(m, dbus.TypeMethodReply, dbus.MakeVariant(l.down))
	case "InhibitDelayMaxUSec":
		l.reply(m, dbus.TypeMethodReply, dbus.MakeVariant(uint64(l.most.Microseconds())))
	default:
		l.fail(m, "org.freedesktop.DBus.Error.UnknownProperty")
	}
}

func (l *Logind) fail(m *dbus.Message, name string) {
	l.reply(m, dbus.TypeError, name)
}

// reply returns after it has sent the reply. The body of an error is its name.
func (l *Logind) reply(call *dbus.Message, kind dbus.Type, body any) {
	m := &dbus.Message{Type: kind, Body: []any{body}, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
		dbus.FieldDestination: call.Headers[dbus.FieldSender],
		dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(body)),
	}}
	if kind == dbus.TypeError {
		m.Headers[dbus.FieldErrorName] = dbus.MakeVariant(body)
	}
	l.conn.Send(m, nil)
}
