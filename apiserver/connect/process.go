package connect

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"monopod/apiserver/kit/guard"
)

// Channels of a process.
const (
	stdinChannel = iota
	stdoutChannel
	stderrChannel
	statusChannel
	resizeChannel
)

// maxStatus is the maximum size of the runtime's exit status of a process, in bytes.
const maxStatus = 64 << 10

// versions are the subprotocols of exec and attach, each of which has a variant in base64. From v4 on the result is
// sent as a Status, before v4 as text if the process failed. In v5 the client can close single channels.
var versions = []string{"v5.", "v4.", "v3.", "v2.", ""}

func processProtocols() (all []string) {
	for _, v := range versions {
		all = append(all, v+"channel.k8s.io", v+"base64.channel.k8s.io")
	}
	return all
}

// Process describes which streams of a process a client wants.
type Process struct {
	Stdin, Stdout, Stderr, TTY bool
	// Missed writes the output from before the attach. It is called if a process ends without an error and without
	// output; nil: no such output is available.
	Missed func(ctx context.Context, stdout, stderr io.Writer)
}

// Serve connects the WebSocket that r requests to the process that the runtime serves at to, until one of them ends. If
// Serve returns an error, nothing has been written to w.
func (p Process) Serve(w http.ResponseWriter, r *http.Request, to target) error {
	protocol, err := Choose(r, processProtocols())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	streams, err := p.open(ctx, to)
	if err != nil {
		return err
	}
	defer streams.conn.Close()
	Upgrade(w, r, protocol, func(ws *websocket.Conn) {
		s := NewChannels(ws, protocol)
		var received guard.Group
		received.Do(func() error {
			defer cancel()
			return s.Receive(streams.inputs())
		})
		if s.Send(p.firstChannel(), nil) != nil { // tells the client that the streams are open
			cancel()
		}
		raw, status := p.copy(ctx, cancel, streams, s.To(stdoutChannel), s.To(stderrChannel))
		if !strings.HasPrefix(protocol, "v5.") && !strings.HasPrefix(protocol, "v4.") {
			raw = []byte(status.Message)
		}
		if len(raw) > 0 {
			_ = s.Send(statusChannel, raw) // the client may have left
		}
		ws.Close()
		guard.Raise(received.Wait())
	})
	return nil
}

// copy writes the process' output until it ends, and returns its result, encoded and decoded. If the connection of
// either side is lost, it calls stop and returns no result.
func (p Process) copy(ctx context.Context, stop func(), streams *streams, stdout,
	stderr io.Writer) ([]byte, metav1.Status) {
	var received atomic.Int64
	var both guard.Group
	send := func(to io.Writer, from io.Reader) {
		if from == nil {
			return
		}
		both.Do(func() error {
			lost := true
			defer func() {
				if lost {
					stop()
				}
			}()
			n, err := io.Copy(to, from)
			received.Add(n)
			lost = err != nil
			return err
		})
	}
	send(stdout, streams.stdout)
	send(stderr, streams.stderr)
	// The status is read concurrently: SPDY reports a lost connection to a stream only after all data has been read.
	var raw []byte
	var err error
	both.Do(func() error {
		raw, err = io.ReadAll(io.LimitReader(streams.status, maxStatus))
		_, _ = io.Copy(io.Discard, streams.status) // beyond maxStatus
		return nil
	})
	guard.Raise(both.Wait())
	var status metav1.Status
	if err != nil || ctx.Err() != nil {
		return nil, status
	}
	failed := json.Unmarshal(raw, &status) == nil && status.Status == metav1.StatusFailure
	if received.Load() == 0 && !failed && p.Missed != nil {
		p.Missed(ctx, writerFor(streams.stdout, stdout), writerFor(streams.stderr, stderr))
	}
	return raw, status
}

// writerFor returns w if the stream was requested, and otherwise io.Discard.
func writerFor(stream io.Reader, w io.Writer) io.Writer {
	if stream != nil {
		return w
	}
	return io.Discard
}

// firstChannel returns the first channel that the server writes to.
func (p Process) firstChannel() byte {
	switch {
	case p.Stdout:
		return stdoutChannel
	case p.Stderr && !p.TTY:
		return stderrChannel
	}
	return statusChannel
}

// streams contains the runtime's streams of a process. Those that were not requested are nil.
type streams struct {
	conn          httpstream.Connection
	status        io.Reader
	stdin, resize io.WriteCloser
	stdout        io.Reader
	stderr        io.Reader
}

// inputs returns the channels that the client writes to.
func (s *streams) inputs() map[byte]io.WriteCloser {
	in := map[byte]io.WriteCloser{}
	if s.stdin != nil {
		in[stdinChannel] = s.stdin
	}
	if s.resize != nil {
		in[resizeChannel] = s.resize
	}
	return in
}

// open opens the streams, in client-go's order.
func (p Process) open(ctx context.Context, to target) (*streams, error) {
	raw, err := dial(ctx, to, "v4.channel.k8s.io")
	if err != nil {
		return nil, err
	}
	conn, err := spdy.NewClientConnection(raw)
	if err != nil {
		raw.Close()
		return nil, err
	}
	s := &streams{conn: conn}
	for _, stream := range []struct {
		kind      string
		requested bool
		set       func(httpstream.Stream)
	}{
		{"error", true, func(st httpstream.Stream) { s.status = st }},
		{"stdin", p.Stdin, func(st httpstream.Stream) { s.stdin = st }},
		{"stdout", p.Stdout, func(st httpstream.Stream) { s.stdout = st }},
		{"stderr", p.Stderr && !p.TTY, func(st httpstream.Stream) { s.stderr = st }},
		{"resize", p.TTY, func(st httpstream.Stream) { s.resize = st }},
	} {
		if !stream.requested {
			continue
		}
		opened, err := open(conn, stream.kind)
		if err != nil {
			conn.Close()
			return nil, err
		}
		stream.set(opened)
	}
	return s, nil
}
