package entry

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// A plain HTTP request on the HTTPS port is redirected; TLS is not affected.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	srv.Listener = plainListener{srv.Listener}
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	srv.StartTLS()
	t.Cleanup(srv.Close)
	at := srv.Listener.Addr().String()

	for name, c := range map[string]struct {
		request  string
		code     int
		location string
	}{
		"a page": {"GET / HTTP/1.1\r\nHost: box:6443\r\n\r\n", 308, "https://box:6443/"},
		"with a query": {"GET /api/v1/pods?limit=5&labelSelector=a%3Db HTTP/1.1\r\nHost: 192.0.2.1:6443\r\n\r\n", 308,
			"https://192.0.2.1:6443/api/v1/pods?limit=5&labelSelector=a%3Db"},
		"without a host": {"GET /x HTTP/1.0\r\n\r\n", 308, "https://" + at + "/x"},
		"a write": {"POST /api/v1/pods HTTP/1.1\r\nHost: box\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x",
			9000), 308, "https://box/api/v1/pods"},
		"a proxy's form": {"GET http://box/healthz HTTP/1.1\r\nHost: box\r\n\r\n", 308, "https://box/healthz"},
		"two slashes":    {"GET //evil.example/x HTTP/1.1\r\nHost: box\r\n\r\n", 308, "https://box//evil.example/x"},
		"a head":         {"HEAD / HTTP/1.1\r\nHost: box\r\n\r\n", 308, "https://box/"},
		"a tunnel":       {"CONNECT box:443 HTTP/1.1\r\nHost: box\r\n\r\n", 400, ""},
		"HTTP/2":         {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, ""},
		"nonsense":       {"NONSENSE\r\n\r\n", 400, ""},
		"too long":       {"GET / HTTP/1.1\r\nHost: box\r\nX: " + strings.Repeat("x", maxPlain) + "\r\n\r\n", 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for i := range c.request { // byte by byte at first, as a slow link may
				if i == 5 {
					io.WriteString(conn, c.request[5:])
					break
				}
				io.WriteString(conn, c.request[i:i+1])
			}
			method, _, _ := strings.Cut(c.request, " ")
			if method == "CONNECT" {
				method = "GET"
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != c.code || resp.Header.Get("Location") != c.location || err != nil || !resp.Close {
				t.Errorf("got %d %q %v (close %t), want %d %q", resp.StatusCode, resp.Header.Get("Location"), err, resp.Close,
					c.code, c.location)
			}
			if c.code == 308 && method != "HEAD" && !strings.Contains(string(body), c.location) {
				t.Errorf("the text is %q", body)
			}
		})
	}
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		for protos, want := range map[string]string{"h2": "HTTP/2.0", "http/1.1": "HTTP/1.1"} {
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: protos == "h2", DisableKeepAlives: true,
			}}
			resp, err := client.Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != want {
				t.Errorf("got %q, want %q", body, want)
			}
		}
	})
}

// A client that never completes its header is disconnected.
func TestPlainHTTPStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		done := make(chan error)
		go func() {
			defer near.Close()
			_, err := (&plainConn{Conn: near}).Read(make([]byte, 512))
			done <- err
		}()
		begin := time.Now()
		io.WriteString(far, "GET / HTTP/1.1\r\nHost: box\r\n")
		if err := <-done; !errors.Is(err, io.EOF) || time.Since(begin) != plainTime {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		far.Close()
	})
}
