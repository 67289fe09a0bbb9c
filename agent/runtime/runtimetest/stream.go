package runtimetest

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

func testExec(t *testing.T, env Env) {
	p := newPod(t, env)
	id := p.serve()
	url, err := env.Runtime.Exec(t.Context(),
		&cri.ExecRequest{ContainerId: id, Cmd: []string{"/web", "cat"}, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	conn := upgrade(t, url, remotecommand.StreamProtocolV4Name)
	streams := open(t, conn, "error", "stdin", "stdout", "stderr")
	if _, err := io.WriteString(streams["stdin"], "from afar"); err != nil {
		t.Fatal(err)
	}
	streams["stdin"].Close()
	if out := readAll(t, streams["stdout"]); out != "from afar" {
		t.Errorf("stdout %q", out)
	}
	if s := streamStatus(t, streams["error"]); s.Status != metav1.StatusSuccess {
		t.Errorf("status %+v", s)
	}
	p.checkExecFails(id)
}

// checkExecFails checks the exit code of a streamed command.
func (p *pod) checkExecFails(id string) {
	p.Helper()
	url, err := p.Runtime.Exec(p.Context(),
		&cri.ExecRequest{ContainerId: id, Cmd: []string{"/web", "exit", "3"}, Stdout: true, Stderr: true})
	if err != nil {
		p.Fatal(err)
	}
	streams := open(p.T, upgrade(p.T, url, remotecommand.StreamProtocolV4Name), "error", "stdout", "stderr")
	s := streamStatus(p.T, streams["error"])
	if s.Reason != remotecommand.NonZeroExitCodeReason || len(s.Details.Causes) != 1 ||
		s.Details.Causes[0].Message != "3" {
		p.Errorf("status %+v", s)
	}
}

func testAttach(t *testing.T, env Env) {
	p := newPod(t, env)
	config := p.container("cat")
	config.Stdin, config.StdinOnce = true, true
	id := p.run(config)
	url, err := env.Runtime.Attach(t.Context(),
		&cri.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	streams := open(t, upgrade(t, url, remotecommand.StreamProtocolV4Name), "error", "stdin", "stdout", "stderr")
	if _, err := io.WriteString(streams["stdin"], "typed\n"); err != nil {
		t.Fatal(err)
	}
	if out, err := bufio.NewReader(streams["stdout"]).ReadString('\n'); err != nil || out != "typed\n" {
		t.Errorf("stdout %q, %v", out, err)
	}
	streams["stdin"].Close()
	if s := p.awaitExit(id); s.ExitCode != 0 {
		t.Errorf("code %d", s.ExitCode)
	}
	p.awaitLog(" stdout F typed\n")
}

var listensOn = regexp.MustCompile(`listens on \S*:(\d+)\n`)

func testPortForward(t *testing.T, env Env) {
	p := newPod(t, env)
	p.serve()
	port := listensOn.FindStringSubmatch(p.log())[1]
	url, err := env.Runtime.PortForward(t.Context(), &cri.PortForwardRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	conn := upgrade(t, url, portforward.ProtocolV1Name)
	want := "Hello from " + p.config.Hostname
	fetch := func(data, failure httpstream.Stream) {
		if page := request(t, data); !strings.Contains(page, want) {
			t.Errorf("got %q; the error stream says %q", page, readAll(t, failure))
		}
	}
	fetch(forward(t, conn, port, 1))
	// The disconnection of a client is not an error; kubectl would report one as the loss of the pod.
	for id, leave := range map[int]func(httpstream.Stream) error{2: httpstream.Stream.Close, 3: httpstream.Stream.Reset} {
		data, failure := forward(t, conn, port, id)
		if _, err := io.WriteString(data, "GET / HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := data.Read(make([]byte, 1)); err != nil {
			t.Errorf("connection %d: %v", id, err)
		}
		if err := leave(data); err != nil {
			t.Errorf("connection %d: %v", id, err)
		}
		if said := readAll(t, failure); said != "" {
			t.Errorf("connection %d: %s", id, said)
		}
	}
	var all sync.WaitGroup
	for id := 4; id < 8; id++ {
		data, failure := forward(t, conn, port, id)
		all.Go(func() { fetch(data, failure) })
	}
	all.Wait()
}

// forward opens the two streams of one connection to a port.
func forward(t *testing.T, conn httpstream.Connection, port string, id int) (data, failure httpstream.Stream) {
	t.Helper()
	stream := func(kind string) httpstream.Stream {
		return create(t, conn, portforward.StreamType, kind, portforward.PortHeader, port,
			portforward.PortForwardRequestIDHeader, strconv.Itoa(id))
	}
	failure = stream(portforward.StreamTypeError)
	failure.Close()
	return stream(portforward.StreamTypeData), failure
}

// request sends an HTTP request, and returns the response after the server has disconnected.
func request(t *testing.T, data httpstream.Stream) string {
	t.Helper()
	if _, err := io.WriteString(data, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Error(err)
	}
	return readAll(t, data)
}

// upgrade opens a connection for streams at a URL. It closes it at the end of the test or after patience.
func upgrade(t *testing.T, url, protocol string) httpstream.Connection {
	t.Helper()
	rt, err := spdy.NewRoundTripper(nil)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := rt.NewConnection(resp)
	if err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { conn.Close() })
	t.Cleanup(func() {
		late.Stop()
		conn.Close()
	})
	return conn
}

// open opens the streams of an exec or attach, in the order that servers require.
func open(t *testing.T, conn httpstream.Connection, types ...string) map[string]httpstream.Stream {
	t.Helper()
	streams := map[string]httpstream.Stream{}
	for _, kind := range types {
		streams[kind] = create(t, conn, remotecommand.StreamType, kind)
	}
	return streams
}

func create(t *testing.T, conn httpstream.Connection, headers ...string) httpstream.Stream {
	t.Helper()
	h := http.Header{}
	for pair := range slices.Chunk(headers, 2) {
		h.Set(pair[0], pair[1])
	}
	s, err := conn.CreateStream(h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readAll(t *testing.T, from io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(from)
	if err != nil && !strings.Contains(err.Error(), net.ErrClosed.Error()) {
		t.Error(err)
	}
	return string(data)
}

func streamStatus(t *testing.T, from io.Reader) (s metav1.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(readAll(t, from)), &s); err != nil {
		t.Fatal(err)
	}
	return s
}
