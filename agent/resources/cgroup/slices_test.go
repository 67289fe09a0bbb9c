package cgroup_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"go.uber.org/goleak"

	"monopod/agent/resources/cgroup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a fake systemd with its own D-Bus socket, like /run/systemd/private.
type peer struct {
	t      *testing.T
	socket string
	life   sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	conns  []net.Conn
	jobs   uint32
	result string // result of the next jobs
	units  map[string]map[string]godbus.Variant
}

func startPeer(t *testing.T) *peer {
	t.Helper()
	p := &peer{t: t, socket: filepath.Join(t.TempDir(), "private"), result: "done",
		units: map[string]map[string]godbus.Variant{}}
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	p.life.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
			p.life.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.hangUp()
		p.life.Wait()
	})
	return p
}

func (p *peer) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *peer) dial(ctx context.Context) (*dbus.Conn, error) {
	return dbus.NewConnection(func() (*godbus.Conn, error) {
		conn, err := godbus.Dial("unix:path="+p.socket, godbus.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		return conn, conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	})
}

func (p *peer) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	if greet(in, conn) != nil {
		return
	}
	for {
		m, err := godbus.DecodeMessage(in)
		if err != nil {
			return
		}
		if m.Type == godbus.TypeMethodCall {
			p.answer(conn, m)
		}
	}
}

// greet accepts every client.
func greet(in *bufio.Reader, out io.Writer) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		answer := "ERROR\r\n"
		switch {
		case strings.HasPrefix(line, "BEGIN"):
			return nil
		case strings.Contains(line, "AUTH EXTERNAL"):
			answer = "OK 1234567890abcdef1234567890abcdef\r\n"
		case strings.Contains(line, "AUTH"):
			answer = "REJECTED EXTERNAL\r\n"
		case strings.HasPrefix(line, "NEGOTIATE_UNIX_FD"):
			answer = "AGREE_UNIX_FD\r\n"
		}
		if _, err := io.WriteString(out, answer); err != nil {
			return err
		}
	}
}

func (p *peer) answer(conn net.Conn, m *godbus.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	member, _ := m.Headers[godbus.FieldMember].Value().(string)
	unit := ""
	if len(m.Body) > 0 {
		unit, _ = m.Body[0].(string)
	}
	_, there := p.units[unit]
	switch {
	case member == "StartTransientUnit" && there:
		p.fail(conn, m, "org.freedesktop.systemd1.UnitExists")
	case member == "StartTransientUnit":
		p.units[unit] = map[string]godbus.Variant{}
		p.keep(unit, m.Body[2])
		p.job(conn, m, unit)
	case member == "SetUnitProperties" && there:
		p.keep(unit, m.Body[2])
		p.send(conn, m, nil)
	case member == "StopUnit" && there:
		delete(p.units, unit)
		p.job(conn, m, unit)
	case member == "AddMatch":
		p.send(conn, m, nil)
	default:
		p.fail(conn, m, "org.freedesktop.systemd1.NoSuchUnit")
	}
}

func (p *peer) keep(unit string, properties any) {
	for _, one := range properties.([][]any) {
		p.units[unit][one[0].(string)] = one[1].(godbus.Variant)
	}
}

// job answers with a job, and signals all clients that it is done.
func (p *peer) job(conn net.Conn, call *godbus.Message, unit string) {
	p.jobs++
	job := godbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", p.jobs))
	p.send(conn, call, []any{job})
	signal := &godbus.Message{Type: godbus.TypeSignal, Body: []any{p.jobs, job, unit, p.result},
		Headers: map[godbus.HeaderField]godbus.Variant{
			godbus.FieldPath:      godbus.MakeVariant(godbus.ObjectPath("/org/freedesktop/systemd1")),
			godbus.FieldInterface: godbus.MakeVariant("org.freedesktop.systemd1.Manager"),
			godbus.FieldMember:    godbus.MakeVariant("JobRemoved"),
			godbus.FieldSignature: godbus.MakeVariant(godbus.SignatureOf(signal(p.jobs, job, unit, p.result)...)),
		}}
	for _, c := range p.conns {
		p.write(c, signal)
	}
}

func signal(body ...any) []any { return body }

func (p *peer) send(conn net.Conn, call *godbus.Message, body []any) {
	p.write(conn, reply(godbus.TypeMethodReply, call, body))
}

func (p *peer) fail(conn net.Conn, call *godbus.Message, name string) {
	m := reply(godbus.TypeError, call, []any{"so it is"})
	m.Headers[godbus.FieldErrorName] = godbus.MakeVariant(name)
	p.write(conn, m)
}

func reply(kind godbus.Type, call *godbus.Message, body []any) *godbus.Message {
	m := &godbus.Message{Type: kind, Body: body,
		Headers: map[godbus.HeaderField]godbus.Variant{godbus.FieldReplySerial: godbus.MakeVariant(call.Serial())}}
	if len(body) > 0 {
		m.Headers[godbus.FieldSignature] = godbus.MakeVariant(godbus.SignatureOf(body...))
	}
	return m
}

func (p *peer) write(conn net.Conn, m *godbus.Message) {
	if err := m.EncodeTo(conn, binary.LittleEndian); err != nil && !errors.Is(err, net.ErrClosed) {
		p.t.Errorf("%s: %v", m, err)
	}
}

func (p *peer) property(unit, name string) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.units[unit][name].Value()
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.units)
}

func limits(memory uint64) []cgroup.Property {
	return []cgroup.Property{
		{Name: "Description", Value: "a pod"}, {Name: "DefaultDependencies", Value: false},
		{Name: "Wants", Value: []string{"a.slice"}}, {Name: "MemoryMax", Value: memory},
	}
}

func TestSystemdSlices(t *testing.T) {
	t.Parallel()
	p := startPeer(t)
	m := cgroup.NewSlices(p.dial)
	defer m.Close()
	for what, err := range map[string]error{
		"start": m.Start("a-b.slice", limits(1<<20)), "second": m.Start("a-c.slice", limits(2<<20)),
	} {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if got := p.property("a-b.slice", "MemoryMax"); got != uint64(1<<20) {
		t.Errorf("MemoryMax %v", got)
	}
	if got, _ := p.property("a-b.slice", "Wants").([]string); len(got) != 1 {
		t.Errorf("Wants %v", got)
	}
	if err := m.Start("a-b.slice", limits(3<<20)); err != nil {
		t.Errorf("start of an existing slice: %v", err)
	}
	if err := m.Set("a-c.slice", []cgroup.Property{{Name: "CPUWeight", Value: uint64(17)}}); err != nil {
		t.Error(err)
	}
	if b, c := p.property("a-b.slice", "MemoryMax"), p.property("a-c.slice", "CPUWeight"); b != uint64(3<<20) ||
		c != uint64(17) {
		t.Errorf("MemoryMax %v, CPUWeight %v", b, c)
	}
	if err := m.Set("none.slice", nil); err == nil || !strings.Contains(err.Error(), "systemd: set none.slice: ") {
		t.Errorf("set of a slice that does not exist: %v", err)
	}
	for range 2 {
		if err := errors.Join(m.Stop("a-b.slice"), m.Stop("a-c.slice")); err != nil {
			t.Error(err)
		}
	}
	if p.count() != 0 {
		t.Error("slices left after Stop")
	}
}

func TestFailedJobIsReported(t *testing.T) {
	t.Parallel()
	p := startPeer(t)
	m := cgroup.NewSlices(p.dial)
	defer m.Close()
	p.mu.Lock()
	p.result = "failed"
	p.mu.Unlock()
	if err := m.Start("a.slice", nil); err == nil || err.Error() != "systemd: start a.slice: failed" {
		t.Error("start with a failing job: ", err)
	}
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	p := startPeer(t)
	m := cgroup.NewSlices(p.dial)
	defer m.Close()
	if err := m.Start("a.slice", nil); err != nil {
		t.Fatal(err)
	}
	p.hangUp()
	if err := m.Stop("a.slice"); err != nil || p.count() != 0 { // the client may not have detected the disconnection
		t.Errorf("stop after a broken connection: %v, %d slices left", err, p.count())
	}
}

func TestNoSystemd(t *testing.T) {
	t.Parallel()
	m := cgroup.NewSlices(func(context.Context) (*dbus.Conn, error) { return nil, errors.New("no such bus") })
	defer m.Close()
	for _, err := range []error{m.Start("a.slice", nil), m.Set("a.slice", nil), m.Stop("a.slice")} {
		if err == nil || !strings.HasSuffix(err.Error(), " a.slice: connect to systemd: no such bus") {
			t.Error(err)
		}
	}
}
