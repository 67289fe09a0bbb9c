package connect

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/spdy"
	utilexec "k8s.io/utils/exec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// talker is a runtime whose processes copy their input to both outputs, and whose ports answer in capitals.
type talker struct{}

func (talker) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool,
	sizes <-chan remotecommand.TerminalSize) error {
	switch cmd[0] {
	case "fail":
		return utilexec.CodeExitError{Err: errors.New("exit code 3"), Code: 3}
	case "size":
		size := <-sizes
		fmt.Fprintf(out, "%dx%d", size.Width, size.Height)
		return nil
	case "one": // does not wait for the end of its input
		buf := make([]byte, 5)
		_, err := io.ReadFull(in, buf)
		fmt.Fprintf(out, "%s", buf)
		return err
	}
	data, err := io.ReadAll(in)
	fmt.Fprintf(out, "out:%s", data)
	fmt.Fprintf(errs, "err:%s", data)
	return err
}

func (talker) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool,
	<-chan remotecommand.TerminalSize) error {
	return nil // the container has ended
}

func (talker) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	if port == 1 {
		return errors.New("refused")
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(stream, buf); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stream, "%d:%s", port, strings.ToUpper(string(buf)))
	return err
}

// fakeRuntime serves a talker's streams.
func fakeRuntime(t *testing.T) streaming.Server {
	t.Helper()
	var s streaming.Server
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeHTTP(w, r) }))
	t.Cleanup(h.Close)
	cfg := streaming.DefaultConfig
	cfg.BaseURL, _ = url.Parse(h.URL + "/")
	var err error
	if s, err = streaming.NewServer(cfg, talker{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// front serves h; it returns a function that opens WebSockets to it, and its address.
func front(t *testing.T,
	h func(http.ResponseWriter, *http.Request) error) (dial func(protocols ...string) (*websocket.Conn, error),
	address string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	t.Cleanup(srv.Close)
	return func(protocols ...string) (*websocket.Conn, error) {
		cfg, err := websocket.NewConfig(strings.Replace(srv.URL, "http", "ws", 1), srv.URL)
		if err != nil {
			return nil, err
		}
		cfg.Protocol = protocols
		return websocket.DialConfig(cfg)
	}, srv.URL
}

func parsed(t *testing.T, raw string) target {
	t.Helper()
	to, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return target{URL: to}
}

func (p Process) exec(t *testing.T, s streaming.Server, cmd string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		resp, err := s.GetExec(
			&cri.ExecRequest{ContainerId: "c", Cmd: []string{cmd}, Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr && !p.TTY,
				Tty: p.TTY})
		if err != nil {
			return err
		}
		return p.Serve(w, r, parsed(t, resp.Url))
	}
}

// heard collects the output by channel until the socket closes.
func heard(ws *websocket.Conn, inBase64 bool) map[byte]string {
	out := map[byte]string{}
	for {
		var data []byte
		if err := websocket.Message.Receive(ws, &data); err != nil {
			return out
		}
		channel, data := data[0], data[1:]
		if inBase64 {
			channel -= '0'
			plain, _ := base64.StdEncoding.DecodeString(string(data))
			data = plain
		}
		out[channel] += string(data)
	}
}

func say(t *testing.T, ws *websocket.Conn, inBase64 bool, channel byte, data string) {
	t.Helper()
	var message any = append([]byte{channel}, data...)
	if inBase64 {
		message = string('0'+channel) + base64.StdEncoding.EncodeToString([]byte(data))
	}
	if err := websocket.Message.Send(ws, message); err != nil {
		t.Fatal(err)
	}
}

func TestProcessInEverySubprotocol(t *testing.T) {
	t.Parallel()
	s := fakeRuntime(t)
	all := Process{Stdin: true, Stdout: true, Stderr: true}
	fails, _ := front(t, Process{Stdout: true}.exec(t, s, "fail"))
	reads, _ := front(t, Process{Stdin: true, Stdout: true}.exec(t, s, "one"))
	for _, protocol := range append(processProtocols(), "") {
		asked, inBase64 := []string{protocol}, strings.Contains(protocol, "base64.")
		if protocol == "" {
			asked = nil
		}
		ws, err := reads(append([]string{"unknown"}, asked...)[min(1, 1-len(asked)):]...)
		if err != nil {
			t.Fatalf("%q: %v", protocol, err)
		}
		say(t, ws, inBase64, stdinChannel, "hello")
		if got := heard(ws, inBase64); got[stdoutChannel] != "hello" {
			t.Errorf("%q: heard %q", protocol, got)
		}
		if ws, err = fails(asked...); err != nil {
			t.Fatalf("%q: %v", protocol, err)
		}
		got := heard(ws, inBase64)[statusChannel]
		var status metav1.Status
		isStatus := json.Unmarshal([]byte(got), &status) == nil && status.Reason == "NonZeroExitCode" &&
			status.Details.Causes[0].Message == "3"
		if withStatus := strings.HasPrefix(protocol, "v5.") || strings.HasPrefix(protocol, "v4."); isStatus != withStatus ||
			!strings.Contains(got, "exit code 3") {
			t.Errorf("%q: ended with %q", protocol, got)
		}
	}
	// Only v5 can close a single channel.
	waits, _ := front(t, all.exec(t, s, "cat"))
	ws, err := waits("v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	say(t, ws, false, stdinChannel, "a")
	say(t, ws, false, stdinChannel, "b")
	say(t, ws, false, 99, "unread")
	say(t, ws, false, Closing, "\x00")
	if got := heard(ws, false); got[stdoutChannel] != "out:ab" || got[stderrChannel] != "err:ab" ||
		!strings.Contains(got[statusChannel], "Success") {
		t.Errorf("heard %q", got)
	}
	sized, _ := front(t, Process{Stdin: true, Stdout: true, TTY: true}.exec(t, s, "size"))
	if ws, err = sized("v4.channel.k8s.io"); err != nil {
		t.Fatal(err)
	}
	say(t, ws, false, resizeChannel, `{"Width":80,"Height":24}`)
	if got := heard(ws, false); got[stdoutChannel] != "80x24" {
		t.Errorf("heard %q", got)
	}
	if _, err := waits("v9.channel.k8s.io"); err == nil {
		t.Error("an unknown subprotocol was accepted")
	}
	// The stream ends when its client disconnects.
	if ws, err = waits("channel.k8s.io"); err != nil {
		t.Fatal(err)
	}
	ws.Close()
}

// Output from before the attach is replayed when the process has ended.
func TestAttachReplaysEarlierOutput(t *testing.T) {
	t.Parallel()
	s := fakeRuntime(t)
	p := Process{Stdin: true, Stdout: true, Stderr: true, Missed: func(_ context.Context, out, errs io.Writer) {
		fmt.Fprint(out, "before")
		fmt.Fprint(errs, "and wrong")
	}}
	serve := func(how func(http.ResponseWriter, *http.Request, target) error) func(http.ResponseWriter,
		*http.Request) error {
		return func(w http.ResponseWriter, r *http.Request) error {
			resp, err := s.GetAttach(&cri.AttachRequest{ContainerId: "c", Stdin: true, Stdout: true, Stderr: true})
			if err != nil {
				return err
			}
			return how(w, r, parsed(t, resp.Url))
		}
	}
	dialWS, _ := front(t, serve(p.Serve))
	ws, err := dialWS("v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if got := heard(ws, false); got[stdoutChannel] != "before" || got[stderrChannel] != "and wrong" {
		t.Errorf("over a WebSocket: %q", got)
	}
	_, address := front(t, serve(p.ServeSPDY))
	streams, err := p.open(t.Context(), parsed(t, address))
	if err != nil {
		t.Fatal(err)
	}
	defer streams.conn.Close()
	var out, errs strings.Builder
	(Process{}).copy(t.Context(), func() {}, streams, &out, &errs)
	if out.String() != "before" || errs.String() != "and wrong" {
		t.Errorf("over SPDY: %q %q", &out, &errs)
	}
}

// The status of a process is read concurrently with its output, so it is not lost if the connection ends.
func TestStatusIsReadConcurrently(t *testing.T) {
	t.Parallel()
	status, told := io.Pipe()
	stdout, lost := io.Pipe()
	go func() {
		fmt.Fprint(told, `{"status":"Failure","message":"lost"}`)
		told.Close()
		lost.Close()
	}()
	_, got := (Process{}).copy(t.Context(), func() {}, &streams{status: status, stdout: stdout}, io.Discard, io.Discard)
	if got.Message != "lost" {
		t.Errorf("%+v", got)
	}
}

func TestForward(t *testing.T) {
	t.Parallel()
	s := fakeRuntime(t)
	to := func(ports ...int32) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, r *http.Request) error {
			resp, err := s.GetPortForward(&cri.PortForwardRequest{PodSandboxId: "p", Port: ports})
			if err != nil {
				return err
			}
			return Forward(w, r, parsed(t, resp.Url), ports)
		}
	}
	dialWS, _ := front(t, to(80, 1))
	for _, protocol := range []string{"", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"} {
		var asked []string
		if protocol != "" {
			asked = []string{protocol}
		}
		ws, err := dialWS(asked...)
		if err != nil {
			t.Fatal(err)
		}
		inBase64 := strings.Contains(protocol, "base64")
		say(t, ws, inBase64, 0, "hello")
		got := heard(ws, inBase64)
		if got[0] != "\x50\x0080:HELLO" || got[1] != "\x50\x00" || got[2] != "\x01\x00" ||
			!strings.Contains(got[3], "refused") {
			t.Errorf("%q: %q", protocol, got)
		}
	}
	none, _ := front(t, to())
	if _, err := none("v4.channel.k8s.io"); err == nil {
		t.Error("accepted without a port")
	}
	ws, err := none(tunnelProtocol)
	if err != nil {
		t.Fatal(err)
	}
	ws.PayloadType = websocket.BinaryFrame
	conn, err := spdy.NewClientConnection(ws)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pairs, err := openPairs(conn, []int32{80})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(pairs[0].data, "hello")
	if data, err := io.ReadAll(pairs[0].data); string(data) != "80:HELLO" {
		t.Errorf("through the tunnel: %q, %v", data, err)
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	dialWS, _ := front(t, func(w http.ResponseWriter, r *http.Request) error {
		return Reader(w, r, func(ctx context.Context, out io.Writer) {
			fmt.Fprint(out, "a line")
			if r.URL.Path == "/" {
				return
			}
			<-ctx.Done()
		})
	})
	for protocol, want := range map[string]string{"": "a line", "binary.k8s.io": "a line",
		"base64.binary.k8s.io": "YSBsaW5l"} {
		var asked []string
		if protocol != "" {
			asked = []string{protocol}
		}
		ws, err := dialWS(asked...)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(ws); string(data) != want || err != nil {
			t.Errorf("%q: %q, %v", protocol, data, err)
		}
	}
}
