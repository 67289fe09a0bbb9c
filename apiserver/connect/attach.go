package connect

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"monopod/apiserver/kit/guard"
)

// ServeSPDY is Serve for a client that uses SPDY. A stream whose Missed is nil can be proxied instead.
func (p Process) ServeSPDY(w http.ResponseWriter, r *http.Request, to target) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	streams, err := p.open(ctx, to)
	if err != nil {
		return err
	}
	defer streams.conn.Close()
	var inputs guard.Group
	process := attached{p, streams, cancel, &inputs}
	opts := &remotecommand.Options{Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr && !p.TTY, TTY: p.TTY}
	remotecommand.ServeAttach(hangupWriter{w, cancel}, r.WithContext(ctx), process, "", "", "", opts,
		0, dialTime, remotecommand.SupportedStreamingProtocols)
	streams.conn.Close() // ends the copies of the client's input
	guard.Raise(inputs.Wait())
	return nil
}

// attached is a process with open streams.
type attached struct {
	Process
	streams *streams
	stop    func()
	inputs  *guard.Group // goroutines that end with both connections
}

// AttachContainer implements remotecommand.Attacher.
func (a attached) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errs io.WriteCloser, _ bool,
	resize <-chan remotecommand.TerminalSize) error {
	if a.streams.stdin != nil && in != nil {
		a.inputs.Do(func() error {
			defer a.streams.stdin.Close()
			_, err := io.Copy(a.streams.stdin, in) // ends with either side
			return err
		})
	}
	if a.streams.resize != nil && resize != nil {
		a.inputs.Do(func() error {
			sizes := json.NewEncoder(a.streams.resize)
			for size := range resize {
				if err := sizes.Encode(size); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if _, status := a.copy(ctx, a.stop, a.streams, out, errs); status.Status == metav1.StatusFailure {
		return errors.New(status.Message)
	}
	return nil
}

// hangupWriter calls hangup when the client of a hijacked connection has left.
type hangupWriter struct {
	http.ResponseWriter
	hangup func()
}

// Hijack implements http.Hijacker.
func (h hangupWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := h.ResponseWriter.(http.Hijacker).Hijack()
	return hangupConn{conn, h.hangup}, buf, err
}

type hangupConn struct {
	net.Conn
	hangup func()
}

// Read implements io.Reader.
func (h hangupConn) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if err != nil {
		h.hangup()
	}
	return n, err
}
