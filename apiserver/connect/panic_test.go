package connect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/apiserver/kit/guard"
)

// torn returns a connection that panics when its client is read.
type torn struct{ http.ResponseWriter }

func (w torn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, _, err := w.ResponseWriter.(http.Hijacker).Hijack()
	bad := tornConn{conn}
	return bad, bufio.NewReadWriter(bufio.NewReader(bad), bufio.NewWriter(bad)), err
}

type tornConn struct{ net.Conn }

func (c tornConn) Read([]byte) (int, error) { panic("torn") }

// TestPanicReachesTheRequest: a panic in a goroutine of a stream ends the stream and is raised in the goroutine
// of its request, where the server recovers; see also the test of the same name in package apiserver.
func TestPanicReachesTheRequest(t *testing.T) {
	t.Parallel()
	s := fakeRuntime(t)
	exec := func(w http.ResponseWriter, r *http.Request) error {
		return Process{Stdin: true, Stdout: true}.exec(t, s, "cat")(w, r)
	}
	forward := func(w http.ResponseWriter, r *http.Request) error {
		resp, err := s.GetPortForward(&cri.PortForwardRequest{PodSandboxId: "s", Port: []int32{80}})
		if err != nil {
			return err
		}
		return Forward(w, r, parsed(t, resp.Url), []int32{80})
	}
	read := func(w http.ResponseWriter, r *http.Request) error {
		return Reader(w, r, func(ctx context.Context, _ io.Writer) { <-ctx.Done() })
	}
	for name, c := range map[string]struct {
		serve    func(http.ResponseWriter, *http.Request) error
		protocol string
	}{
		"exec":         {exec, "v5.channel.k8s.io"},
		"port-forward": {forward, "v4.channel.k8s.io"},
		"log":          {read, "binary.k8s.io"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recovered := make(chan error, 1)
			dialWS, _ := front(t, func(w http.ResponseWriter, r *http.Request) error {
				recovered <- guard.Call(func() error { return c.serve(torn{w}, r) })
				return nil
			})
			ws, err := dialWS(c.protocol)
			if err != nil {
				t.Fatal(err)
			}
			defer ws.Close()
			err = <-recovered
			if p := (*guard.Panic)(nil); !errors.As(err, &p) || p.Value != "torn" ||
				!strings.Contains(string(p.Stack), "tornConn") {
				t.Errorf("got %v, want the panic of the goroutine with its stack", err)
			}
		})
	}
}

// TestPanicOfACopyReachesTheRequest tests the same for a process' output.
func TestPanicOfACopyReachesTheRequest(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	in, out := io.Pipe()
	defer out.Close()
	err := guard.Call(func() error {
		Process{Stdout: true, Stderr: true}.copy(ctx, func() { in.Close(); stop() }, &streams{
			status: strings.NewReader(""), stdout: panicking{}, stderr: in,
		}, io.Discard, io.Discard)
		return nil
	})
	if p := (*guard.Panic)(nil); !errors.As(err, &p) || p.Value != "copy" {
		t.Errorf("got %v, want the panic of the copy", err)
	}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("copy") }
