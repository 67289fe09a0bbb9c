package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/guard"
)

func TestSlowClients(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", answers("ok"))
		s.use(nil, s.rule("", "/", route.Options{Wait: WaitTime}, at80("10.0.0.1:80")))
		// send writes parts with pauses. It returns the response and the time until the connection closes.
		send := func(pause time.Duration, parts ...string) (string, time.Duration) {
			began := time.Now()
			conn, err := s.net.dial(t.Context(), "", "ingress:80")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ended := make(chan struct{})
			defer close(ended)
			go func() {
				for _, part := range parts {
					if _, err := io.WriteString(conn, part); err != nil {
						return
					}
					select {
					case <-time.After(pause):
					case <-ended:
						return
					}
				}
			}()
			got, _ := io.ReadAll(conn)
			return string(got), time.Since(began)
		}
		within := func(what string, took, from, to time.Duration) {
			t.Helper()
			if took < from || took > to {
				t.Errorf("%s: the connection closed after %v, want %v to %v", what, took, from, to)
			}
		}
		_, took := send(0, "GET / HTTP/1.1\r\nHo")
		within("unfinished header", took, headerTime, headerTime+time.Second)
		_, took = send(time.Second, slices.Repeat([]string{"G"}, 100)...)
		within("slow header", took, headerTime, headerTime+time.Second)
		_, took = send(0)
		within("no request", took, headerTime, keepTime+time.Second)
		got, took := send(0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		within("idle", took, keepTime, keepTime+time.Second)
		if !strings.Contains(got, "\r\n\r\nok") {
			t.Errorf("response to a fast request: %s", got)
		}
		const post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20\r\n\r\n"
		got, took = send(0, post, "123")
		within("unfinished body", took, bodyStall-deadlineStep, bodyStall+deadlineStep)
		if !strings.HasPrefix(got, "HTTP/1.1 408 ") {
			t.Errorf("response to an unfinished body: %s", got)
		}
		got, took = send(50*time.Second, append([]string{post}, slices.Repeat([]string{"x"}, 20)...)...)
		within("slow body", took, 10*time.Minute, 20*time.Minute)
		if !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("response to a slow body: %s", got)
		}

		if n := value(t, s.metrics.conns.WithLabelValues("http")); n != 0 {
			t.Errorf("%v connections are still open", n)
		}
	})
}

// TestWebSocketEndsWithServer stops a server, as that of a deleted Gateway.
func TestWebSocketEndsWithServer(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.endpoint("10.0.0.1:80", func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
			_, _ = io.Copy(conn, rw)
		})
		s.use(nil, s.rule("", "/", route.Options{}, at80("10.0.0.1:80")))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		server := NewServer("http", "80", s.net.listen("gateway:80"))
		h := server.Handler(&s.site, s.via, s.metrics)
		go func() { done <- server.Serve(ctx, h, guard.Logging(zap.NewNop())) }()
		conn, err := s.net.dial(t.Context(), "", "gateway:80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%+v, %v", resp, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the WebSocket is open after its server has stopped: %v", err)
		}
	})
}

func TestWebSocket(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Key") != "k" {
				t.Errorf("the endpoint got %v", r.Header)
			}
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello ")
			_, _ = io.Copy(conn, rw)
		})
		s.use(nil, s.rule("", "/", route.Options{Wait: WaitTime}, at80("10.0.0.1:80")))
		conn, err := s.net.dial(t.Context(), "", "ingress:80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn,
			"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n")
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%+v, %v", resp, err)
		}
		expect := func(want string) {
			t.Helper()
			got := make([]byte, len(want))
			if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		expect("hello ")
		for i := range 3 {
			time.Sleep(time.Hour) // an idle WebSocket stays open
			fmt.Fprint(conn, "frame", i)
			expect(fmt.Sprint("frame", i))
		}
		s.use(nil) // the WebSocket stays open without its rule
		fmt.Fprint(conn, "last")
		expect("last")
	})
}

// Like gRPC, the test streams in both directions over HTTP/2, with trailers.
func TestStreams(t *testing.T) {
	for name, scheme := range map[string]string{"h2c": "http", "h2": "https"} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, s *stage) {
				s.open(scheme, nil)
				s.endpoint("10.0.0.1:80", func(w http.ResponseWriter, r *http.Request) {
					if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" {
						t.Errorf("the endpoint got %s %v", r.Proto, r.Header)
					}
					w.Header().Set("Content-Type", "application/grpc")
					w.Header().Set("Trailer", "Grpc-Status")
					lines := bufio.NewScanner(r.Body)
					for lines.Scan() {
						fmt.Fprintln(w, "echo", lines.Text())
						w.(http.Flusher).Flush()
					}
					w.Header().Set("Grpc-Status", "0")
				}, serveH2C)
				s.use(nil, s.rule("", "/", route.Options{Wait: WaitTime, MaxBody: 1000},
					Servers{addresses: []string{"10.0.0.1:80"}, protocol: h2c}))
				out, in := io.Pipe()
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+"://a.com/pkg.Service/Method", out)
				r.Header.Set("Content-Type", "application/grpc+proto")
				r.Header.Set("Te", "trailers")
				answer := make(chan *http.Response, 1)
				go func() {
					resp, err := s.client(http2).Do(r)
					if err != nil {
						t.Error(err)
					}
					answer <- resp
				}()
				time.Sleep(10 * time.Minute) // before the body and the response begin
				fmt.Fprintln(in, "one")
				resp := <-answer
				if resp == nil {
					return
				}
				defer resp.Body.Close()
				lines := bufio.NewScanner(resp.Body)
				for _, word := range []string{"one", "two", "three"} {
					if word != "one" {
						time.Sleep(10 * time.Minute)
						fmt.Fprintln(in, word)
					}
					if !lines.Scan() || lines.Text() != "echo "+word {
						t.Errorf("got %q, %v", lines.Text(), lines.Err())
					}
				}
				in.Close()
				if lines.Scan() || resp.Trailer.Get("Grpc-Status") != "0" || resp.ProtoMajor != 2 {
					t.Errorf("%s, trailers %v", resp.Proto, resp.Trailer)
				}
			})
		})
	}
}

// The client receives parts of a response as soon as the endpoint sends them.
func TestServerSentEvents(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Minute)
			}
		})
		s.use(nil, s.rule("", "/", route.Options{Wait: WaitTime}, at80("10.0.0.1:80")))
		began := time.Now()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.com/", strings.NewReader("subscribe"))
		resp, err := s.client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var when []time.Duration
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if lines.Text() != "" {
				when = append(when, time.Since(began))
			}
		}
		if want := []time.Duration{0, 5 * time.Minute, 10 * time.Minute}; !slices.Equal(when, want) || lines.Err() != nil {
			t.Errorf("events arrived after %v, error %v", when, lines.Err())
		}
	})
}

// An upload may take longer than the time limit for an answer.
func TestLongUpload(t *testing.T) {
	in(t, func(t *testing.T, s *stage) {
		s.open("http", nil)
		s.endpoint("10.0.0.1:80", func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		})
		s.use(nil, s.rule("", "/", route.Options{Wait: WaitTime}, at80("10.0.0.1:80")))
		out, in := io.Pipe()
		go func() {
			for range 30 {
				_, _ = in.Write(bytes.Repeat([]byte("x"), 1000))
				time.Sleep(30 * time.Second)
			}
			in.Close()
		}()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.com/", out)
		if got := do(t, s.client(), r); got != "200 30000 <nil>" {
			t.Error("response to a long upload: ", got)
		}
	})
}
