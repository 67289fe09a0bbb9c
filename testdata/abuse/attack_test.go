package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"monopod/testdata/harness"
)

// attacks are the attacks by name. Each sends requests without credentials over one connection, until ctx ends or the
// server closes the connection.
var attacks = map[string]func(ctx context.Context, conn net.Conn){
	// Each request has 3.3 KB and decodes to a header list of 130 KB.
	"cookies": func(ctx context.Context, conn net.Conn) {
		go io.Copy(io.Discard, conn)
		client := greet(conn)
		for id := uint32(1); ctx.Err() == nil && client.get(id, "/api/v1/pods", 3300) == nil; id += 2 {
		}
	},
	"settings": func(ctx context.Context, conn net.Conn) {
		go io.Copy(io.Discard, conn)
		client := greet(conn)
		for id := uint32(1); id < 100; id += 2 {
			if client.get(id, "/version", 0) != nil {
				return
			}
		}
		var entries []http2.Setting
		for i := range uint32(2700) {
			entries = append(entries, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000 + i%2})
		}
		for ctx.Err() == nil && client.framer.WriteSettings(entries...) == nil {
		}
	},
	"unread":      func(ctx context.Context, conn net.Conn) { ignore(ctx, conn, "/version") },
	"unread page": func(ctx context.Context, conn net.Conn) { ignore(ctx, conn, "/") },
}

// ignore sends more requests than a connection may have streams, and reads no answers.
func ignore(ctx context.Context, conn net.Conn, path string) {
	client := greet(conn)
	for id := uint32(1); id < 1000 && ctx.Err() == nil && client.get(id, path, 0) == nil; id += 2 {
	}
	<-ctx.Done()
}

// client writes HTTP/2 frames without the checks of a real client.
type client struct {
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
}

func greet(conn net.Conn) *client {
	c := &client{framer: http2.NewFramer(conn, nil)}
	c.enc = hpack.NewEncoder(&c.block)
	if _, err := io.WriteString(conn, http2.ClientPreface); err == nil {
		_ = c.framer.WriteSettings() // after a failure the next write fails too
	}
	return c
}

// get sends a GET with a number of cookie fields.
func (c *client) get(id uint32, path string, cookies int) error {
	c.block.Reset()
	// a write to a bytes.Buffer does not fail
	field := func(name, value string) { _ = c.enc.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	field(":method", http.MethodGet)
	field(":scheme", "https")
	field(":authority", "box")
	field(":path", path)
	for range cookies {
		field("cookie", "a=b")
	}
	return c.framer.WriteHeaders(
		http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndStream: true, EndHeaders: true})
}

// connect opens a connection with a small receive buffer. A write that takes longer than a second fails.
func connect(ctx context.Context, address string) (net.Conn, error) {
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if failed := raw.Control(
			func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) }); failed != nil {
			return failed
		}
		return err
	}}
	conn, err := (&tls.Dialer{NetDialer: &small, Config: &tls.Config{InsecureSkipVerify: true,
		NextProtos: []string{"h2"}}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return impatient{conn}, nil
}

type impatient struct{ net.Conn }

func (c impatient) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// TestAttacksWithoutCredentials tests that attacks without credentials neither slow down the requests of other clients
// nor end an existing watch, and that the server closes connections that are not read.
func TestAttacksWithoutCredentials(t *testing.T) {
	t.Parallel()
	programs := harness.Build(t)
	dir, err := programs.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	process := harness.NewServer(programs.Monopod(harness.Plain), dir, "--node-name", "node1", "--runtime=fake")
	t.Cleanup(func() {
		process.CleanUp(false)
		os.RemoveAll(dir)
	})
	process.Start()
	if err := process.Ready(); err != nil {
		t.Fatal(err)
	}
	s, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	const maps = "/api/v1/namespaces/default/configmaps"
	if _, err := s.want(ctx, http.MethodPost, maps, `{"metadata":{"name":"a"}}`); err != nil {
		t.Fatal(err)
	}
	quiet := s.watch(t, maps+"?watch=1&fieldSelector=metadata.name=a")
	var before rest
	if err := s.count(ctx, &before); err != nil {
		t.Fatal(err)
	}
	for name, attack := range attacks {
		during, cancel := context.WithTimeout(ctx, 3*time.Second)
		var attackers sync.WaitGroup
		holds := strings.HasPrefix(name, "unread")
		conns := 4 // each is replaced when its attack ends
		if holds {
			conns = 40 // they stay open
		}
		for range conns {
			attackers.Go(func() {
				for during.Err() == nil {
					conn, err := connect(during, s.url.Host)
					if err != nil {
						continue
					}
					t.Cleanup(func() { conn.Close() })
					if attack(during, conn); !holds {
						conn.Close()
					}
				}
			})
		}
		var took []time.Duration
		for during.Err() == nil {
			from := time.Now()
			if _, err := s.want(ctx, http.MethodGet, maps+"/a", ""); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(from))
		}
		cancel()
		attackers.Wait()
		slices.Sort(took)
		p99, rss := took[len(took)*99/100], harness.ProcNumber(t, s.pid, "status", "VmRSS:")/1024
		t.Logf("%s: p50 %v, p99 %v of %d requests of another client, RSS %d MB", name, took[len(took)/2], p99, len(took), rss)
		if p99 > harness.Scaled(time.Second) || rss > 300 {
			t.Errorf("%s: p99 %v, RSS %d MB", name, p99, rss)
		}
	}
	var after rest
	if !harness.Eventually(2*time.Minute, func() bool {
		return s.count(ctx, &after) == nil &&
			after.fds <= before.fds+5
	}) {
		t.Errorf("%.0f open files, want at most 5 more than %.0f", after.fds, before.fds)
	}
	if _, err := s.want(ctx, http.MethodPut, maps+"/a", `{"metadata":{"name":"a"},"data":{"k":"v"}}`); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"ADDED"`, `"MODIFIED"`} {
		if line, err := quiet.ReadString('\n'); err != nil || !strings.Contains(line, want) {
			t.Errorf("the existing watch: %v %s", err, line)
		}
	}
}

// watch opens a watch as the administrator.
func (s *server) watch(t *testing.T, path string) *bufio.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.admin.token)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close(); transport.CloseIdleConnections() })
	return bufio.NewReader(resp.Body)
}
