package cni

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
)

// serveCalls runs a server for the stub until stop is called.
func serveCalls(t testing.TB, n Network, log *zap.Logger) (stop func()) {
	t.Helper()
	s, err := n.Listen(log, nil)
	if err != nil {
		t.Error(err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { s.Serve(ctx) })
	return sync.OnceFunc(func() { cancel(); ended.Wait() })
}

func removeProgram(t testing.TB, n Network) {
	t.Helper()
	if err := os.Remove(filepath.Join(n.serverDir(), "monopod")); err != nil {
		t.Error(err)
	}
}

func TestServerAnswersTheStub(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		removeProgram(t, n)
		defer serveCalls(t, n, zaptest.NewLogger(t))()
		for file, mode := range map[string]os.FileMode{n.serverDir(): os.ModeDir | 0o700, n.socket(): os.ModeSocket | 0o600} {
			if info, err := os.Stat(file); err != nil || info.Mode() != mode {
				t.Errorf("%s: %v, %v; want mode %s", file, info, err, mode)
			}
		}
		p := newPod(t, n, "served")
		p.add()
		p.serve(8080)
		if got, err := get(p.ip.String() + ":8080"); err != nil || got != n.Gateways()[0].String() {
			t.Errorf("from the host to the pod: client %q, error %v; want the gateway as client", got, err)
		}
		lo := map[string]any{"cniVersion": "0.3.1", "name": "cni-loopback", "type": "loopback"}
		if out, err := p.exec(loopbackName, "ADD", lo); err != nil || !strings.Contains(out, "127.0.0.1/8") {
			t.Errorf("loopback: %v: %s", err, out)
		}
		if out, err := p.run("VERSION"); err != nil || !strings.Contains(out, "supportedVersions") {
			t.Errorf("VERSION: %v: %s", err, out)
		}
		for _, command := range []string{"CHECK", "DEL", "DEL"} {
			if out, err := p.run(command); err != nil || out != "" {
				t.Errorf("%s: %v %s", command, err, out)
			}
		}
		var exit *exec.ExitError
		if out, err := p.run("CHECK"); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
			!strings.Contains(out, "has no address") {
			t.Errorf("CHECK after DEL: %v, %s", err, out)
		}
		if holders, err := n.pool().Holders(); err != nil || len(holders) != 0 {
			t.Errorf("holders after DEL: %v, error %v", holders, err)
		}
	})
}

// The server and the program return the same bytes.
func TestServerAnswersLikeTheProgram(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		p := newPod(t, n, "same")
		good := map[string]any{"cniVersion": "1.0.0", "name": "monopod"}
		for _, tt := range []struct {
			plugin, command, id string
			conf                map[string]any
		}{
			{pluginName, "VERSION", "same", good},
			{pluginName, "ADD", "same", good}, // fails without a bridge
			{pluginName, "GC", "same", good},
			{pluginName, "CHECK", "../same", good},
			{pluginName, "DEL", "same", map[string]any{"cniVersion": "9.0.0", "name": "monopod"}},
			{pluginName, "DEL", "same", map[string]any{"cniVersion": "1.0.0"}},
			{loopbackName, "ADD", "same", good},
			{loopbackName, "DEL", "same", good},
		} {
			p.id = tt.id
			alone, aloneErr := p.exec(tt.plugin, tt.command, tt.conf)
			stop := serveCalls(t, n, zaptest.NewLogger(t))
			served, servedErr := p.exec(tt.plugin, tt.command, tt.conf)
			stop()
			if alone != served || fmt.Sprint(aloneErr) != fmt.Sprint(servedErr) {
				t.Errorf("%s %s:\nprogram: %v %s\nserver: %v %s", tt.plugin, tt.command, aloneErr, alone, servedErr, served)
			}
		}
	})
}

// The stub runs the program if the server closes the connection without a complete answer, as after a kill.
func TestStubRunsProgramWithoutServer(t *testing.T) {
	t.Parallel()
	whole := []byte{0x4d, 0x4e, 0x50, 0x31, 7, 0, 0, 0, 4, 0, 0, 0, 'g', 'o', 'o', 'd'}
	onHost(t, func() {
		n := prepare(t)
		for i, tt := range []struct {
			name   string
			answer []byte
		}{
			{"closed", nil},
			{"truncated header", whole[:5]},
			{"truncated output", whole[:len(whole)-1]},
			{"another protocol", append([]byte("HTTP"), whole[4:]...)},
			{"output too large", append(append([]byte{}, whole[:8]...), 0xff, 0xff, 0xff, 0xff)},
		} {
			l, err := net.Listen("unix", n.socket())
			if err != nil {
				t.Error(err)
				return
			}
			answered := make(chan error, 1)
			go func() { answered <- answerOnce(l, tt.answer) }()
			p := newPod(t, n, fmt.Sprint("alone", i))
			p.add()
			if err := <-answered; err != nil || !p.ip.IsValid() {
				t.Errorf("%s: %v, address %s", tt.name, err, p.ip)
			}
			l.Close()
		}
	})
}

func answerOnce(l net.Listener, answer []byte) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := readCall(conn); err != nil {
		return err
	}
	_, err = conn.Write(answer)
	return err
}

// The stub completes ADD if the server is killed during ADD.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		p := newPod(t, n, "killed")
		locked := call{plugin: pluginName, env: map[string]string{"CNI_CONTAINERID": p.id}, config: mustConf(t, n)}
		unlock, err := locked.lock(func() bool { return true }) // blocks the call in the server
		if err != nil {
			t.Error(err)
			return
		}
		defer unlock()
		server := exec.Command(os.Args[0])
		server.Env = append(os.Environ(), "CNI_TEST_SERVE="+string(mustConf(t, n)))
		ready, err := server.StdoutPipe()
		if err == nil {
			err = server.Start()
		}
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil { // the server has read the request
				t.Error(err)
			}
			if err := server.Process.Kill(); err != nil {
				t.Error(err)
			}
			server.Wait()
			unlock()
		}()
		p.add() // on this thread, which is in the namespace of the host
		<-killed
		if used, err := n.pool().Used(); err != nil || len(used) != 1 || used[0] != p.ip {
			t.Errorf("used addresses %v, error %v; want only the address of the pod, %v", used, err, p.ip)
		}
	})
}

func mustConf(t testing.TB, n Network) []byte {
	t.Helper()
	data, err := json.Marshal(pluginConf{CNIVersion: cniVersion, Name: "monopod", Type: pluginName, Network: n})
	if err != nil {
		t.Error(err)
	}
	return data
}

// serveUntilKilled is the server process of TestServerIsKilled. It writes one byte when it listens, and another when it
// has read the call.
func serveUntilKilled(conf string) error {
	var n pluginConf
	if err := json.Unmarshal([]byte(conf), &n); err != nil {
		return err
	}
	s, err := n.Listen(zap.NewNop(), nil)
	if err != nil {
		return err
	}
	os.Stdout.WriteString("l")
	conn, err := s.listener.AcceptUnix()
	if err != nil {
		return err
	}
	c, err := readCall(conn)
	if err != nil {
		return err
	}
	os.Stdout.WriteString("r")
	return s.onHost(func() error {
		return c.run(func() bool { return waits(conn) }, func(a answer) error { return writeAnswer(conn, a) })
	})
}

func TestCallsForOneContainerAreSerialized(t *testing.T) {
	t.Parallel()
	conf := mustConf(t, testNetwork(t, netip.MustParsePrefix("10.88.7.0/24")))
	of := func(container string) call {
		return call{plugin: pluginName, env: map[string]string{"CNI_CONTAINERID": container}, config: conf}.withConf()
	}
	always := func() bool { return true }
	unlock, err := of("a").lock(always)
	if err != nil {
		t.Fatal(err)
	}
	other, err := of("b").lock(always)
	if err != nil {
		t.Fatal("lock of another container: ", err)
	}
	other()
	asked := 0
	if _, err := of("a").lock(func() bool { asked++; return asked < 3 }); !errors.Is(err, errBusy) || asked != 3 {
		t.Errorf("lock of the same container: %v after %d checks, want 3", err, asked)
	}
	unlock()
	again, err := of("a").lock(always)
	if err != nil {
		t.Fatal("lock after the first call: ", err)
	}
	again()
}

// ADD releases the address if its answer fails to be sent, and has no effect if the caller has already disconnected.
func TestCallerDisconnects(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		p := newPod(t, n, "gone")
		add := func() call {
			return call{plugin: pluginName, config: mustConf(t, n), env: map[string]string{
				"CNI_COMMAND": "ADD", "CNI_CONTAINERID": p.id, "CNI_NETNS": p.path, "CNI_IFNAME": "eth0",
			}}
		}
		err := add().run(func() bool { return false },
			func(answer) error { t.Error("run sent an answer without a caller"); return nil })
		if !errors.Is(err, errCallerGone) {
			t.Error(err)
		}
		err = add().run(func() bool { return true }, func(a answer) error {
			if holders, err := n.pool().Holders(); err != nil || len(holders) != 1 || a.code != 0 {
				t.Errorf("before the answer %[3]s: holders %[1]v, error %[2]v", holders, err, a.output)
			}
			return unix.EPIPE
		})
		if holders, herr := n.pool().Holders(); !errors.Is(err, unix.EPIPE) || herr != nil || len(holders) != 0 {
			t.Errorf("after the failed answer: %v, holders %v, error %v", err, holders, herr)
		}
	})
}

func TestHostileRequests(t *testing.T) {
	t.Parallel()
	request := func(m, head, config uint32, data string) []byte {
		b := binary.NativeEndian.AppendUint32(nil, m)
		b = binary.NativeEndian.AppendUint32(b, head)
		return append(binary.NativeEndian.AppendUint32(b, config), data...)
	}
	for name, data := range map[string][]byte{
		"nothing":                 nil,
		"part of a header":        request(magic, 0, 0, "")[:7],
		"another protocol":        request(0x20544547, 10, 0, "GET / HTTP"),
		"too large":               request(magic, 0, maxRequest+1, ""),
		"sizes that overflow":     request(magic, 1<<31, 1<<31, ""),
		"data too short":          request(magic, 12, 100, "monopod-cni\x00{}"),
		"no plugin":               request(magic, 0, 2, "{}"),
		"another program":         request(magic, 8, 2, "/bin/sh\x00{}"),
		"not a variable":          request(magic, 17, 0, "monopod-cni\x00CNI_\x00"),
		"variable without prefix": request(magic, 23, 0, "monopod-cni\x00PATH=/bin/\x00"),
		"only zeros":              request(magic, 4, 0, "\x00\x00\x00\x00"),
		"empty variable":          request(magic, 20, 0, "monopod-cni\x00\x00CNI_A=\x00"),
	} {
		if c, err := readCall(bytes.NewReader(data)); err == nil {
			t.Errorf("%s: accepted as %+v", name, c)
		}
	}
	c, err := readCall(bytes.NewReader(request(magic, 28, 2, "monopod-cni\x00CNI_COMMAND=ADD\x00{}")))
	if err != nil || c.env["CNI_COMMAND"] != "ADD" || string(c.config) != "{}" {
		t.Errorf("a valid request: %+v, error %v", c, err)
	}
}

// The program handles a configuration that is too large for the server.
func TestStubForwardsLargeConfiguration(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t)
		defer serveCalls(t, n, zaptest.NewLogger(t))()
		p := newPod(t, n, "large")
		for _, size := range []int{maxRequest - 400, maxRequest, 5 * maxRequest} {
			conf := map[string]any{"cniVersion": "1.0.0", "name": "x", "padding": strings.Repeat("x", size)}
			if out, err := p.exec(loopbackName, "ADD", conf); err != nil || !strings.Contains(out, "127.0.0.1/8") {
				t.Errorf("%d bytes: %v: %s", size, err, out)
			}
		}
	})
}

func TestServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, netip.MustParsePrefix("10.88.7.0/24"))
	stop := serveCalls(t, n, zaptest.NewLogger(t))
	began := time.Now()
	stop()
	if _, err := os.Stat(n.socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket still exists after %s: %v", time.Since(began), err)
	}
}
