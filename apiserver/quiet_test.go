package apiserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"monopod/apiserver"
)

// serveHTTP2 is like serve, over TLS and HTTP/2; each call of connect returns a new client.
func serveHTTP2(t *testing.T) (a API, connect func() API) {
	t.Helper()
	a, h := serveBoth(t, func(*apiserver.Config) {})
	ts := httptest.NewUnstartedServer(h)
	ts.EnableHTTP2 = true
	ts.StartTLS()
	t.Cleanup(ts.Close)
	return a, func() API {
		transport := ts.Client().Transport.(*http.Transport).Clone()
		t.Cleanup(transport.CloseIdleConnections)
		return API{t, ts.URL, &http.Client{Transport: transport}, a.reg}
	}
}

// Watches do not wait for a client that does not read.
func TestStalledWatchDelaysNoOther(t *testing.T) {
	t.Parallel()
	a, connect := serveHTTP2(t)
	const path = confs + "?watch=1&resourceVersion="
	now := fmt.Sprint(a.reg.Revision())
	stalled := connect().do("GET", path+now, "")
	var others []*bufio.Reader
	for range 2 {
		others = append(others, bufio.NewReader(connect().do("GET", path+now, "").Body))
	}
	a.do("POST", confs, `{"metadata":{"name":"c"}}`, asJSON)
	body := `{"data":{"k":"` + strings.Repeat("x", 300_000) + `%d"}}`
	for i := range 16 { // more than a connection buffers
		a.do("PATCH", confs+"/c", fmt.Sprintf(body, i), asMerge)
		for n, in := range others {
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					t.Fatalf("watch %d, change %d: %v", n, i, err)
				}
				if strings.Contains(line, fmt.Sprintf(`xx%d"`, i)) {
					break
				}
			}
		}
	}
	in := bufio.NewReader(stalled.Body) // the missed events arrive when it reads
	line, err := in.ReadString('\n')
	if err != nil || !strings.Contains(line, `"ADDED"`) {
		t.Errorf("%v %.100s", err, line)
	}
	if line, err = in.ReadString('\n'); err != nil || !strings.Contains(line, `xx0"`) {
		t.Errorf("%v %.100s", err, line)
	}
}

// A watch ends after its timeout, with a last bookmark.
func TestQuietWatchEnds(t *testing.T) {
	t.Parallel()
	_, connect := serveHTTP2(t)
	resp := connect().do("GET", confs+"?watch=1&timeoutSeconds=1&allowWatchBookmarks=true", "")
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), `"BOOKMARK"`) {
		t.Errorf("%v %s", err, text)
	}
}

// The watch of a client that has disconnected no longer counts towards the limit.
func TestWatchOfDisconnectedClient(t *testing.T) {
	t.Parallel()
	a, connect := serveHTTP2(t)
	client := connect()
	for range 20 {
		resp := client.do("GET", confs+"?watch=1", "")
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		resp.Body.Close()
		for open := true; open; {
			data, err := io.ReadAll(a.do("GET", "/metrics", "").Body)
			if err != nil {
				t.Fatal(err)
			}
			open = !strings.Contains(string(data),
				`apiserver_longrunning_requests{resource="configmaps",subresource="",verb="WATCH"} 0`)
		}
	}
}
