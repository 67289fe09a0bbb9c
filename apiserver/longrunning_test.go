package apiserver_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"monopod/apiserver"
	"monopod/apiserver/flow"
)

// The watches of one user are limited, and those of all users together; neither limit affects an admin. A long
// selector counts as more than one watch.
func TestWatchesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dial, end := piped(t, apiserver.Config{Authenticator: byToken(), Limits: flow.Limits{MaxLongRunningPerUser: 4}})
		var conns []net.Conn
		defer func() {
			for _, c := range conns {
				c.Close()
			}
			end()
		}()
		plain, long := "?watch=1", "?watch=1&labelSelector=a+in+("+strings.Repeat("x", 9<<10)+")"
		for _, c := range []struct {
			user, query string
			code        int
		}{
			{"a", plain, 200}, {"a", plain, 200}, {"a", long, 429}, {"a", plain, 200}, {"a", plain, 200}, {"a", plain, 429},
			{"b", plain, 200}, {"b", plain, 200}, {"b", plain, 200}, {"b", plain, 200}, {"c", plain, 429},
			{"admin", plain, 200},
		} {
			conn := dial()
			conns = append(conns, conn)
			go request(conn, c.user, "GET", confs+c.query, "", 0)
			if code, body := begun(t, conn); code != c.code ||
				code == 429 && !strings.Contains(body, `"reason":"TooManyRequests"`) {
				t.Errorf("%s %.20s: %d %s", c.user, c.query, code, body)
			}
		}
		conns[0].Close()
		synctest.Wait()
		conn := dial()
		conns = append(conns, conn)
		go request(conn, "c", "GET", confs+plain, "", 0)
		if code, body := begun(t, conn); code != 200 {
			t.Errorf("after another ended: %d %s", code, body)
		}
	})
}

// begun reads the start of a response.
func begun(t *testing.T, conn net.Conn) (code int, text string) {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	switch text = string(buf[:n]); {
	case strings.HasPrefix(text, "HTTP/1.1 200"):
		return http.StatusOK, text
	case strings.HasPrefix(text, "HTTP/1.1 429"):
		if !strings.Contains(text, "Retry-After: 1") {
			t.Error("no Retry-After")
		}
		return http.StatusTooManyRequests, text
	}
	return 0, text
}

func TestSelectorsAreBounded(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for name, c := range map[string]struct {
		query string
		want  string
	}{
		"a long label selector": {"labelSelector=" + strings.Repeat("x", 65<<10),
			"labelSelector: Too long: may not be more than 65536 bytes"},
		"a long field selector": {"fieldSelector=metadata.name!=" + strings.Repeat("x", 65<<10), "fieldSelector: Too long"},
		"many values": {"labelSelector=a+in+(" + strings.Repeat("x", 10) + numbers(1000) + ")",
			"labelSelector: Too many: may not have more than 1000"},
		"many requirements": {"labelSelector=" + strings.TrimSuffix(strings.Repeat("a,", 1001), ","),
			"labelSelector: Too many"},
		"many fields": {"fieldSelector=" + strings.TrimSuffix(strings.Repeat("metadata.name!=a,", 1001), ","),
			"fieldSelector: Too many"},
	} {
		for _, watch := range []string{"", "watch=1&"} {
			code, out := a.read("GET", confs+"?"+watch+c.query, "")
			if text, _ := out["message"].(string); code != 400 || !strings.HasPrefix(text, c.want) {
				t.Errorf("%s: %d %.200s", name, code, text)
			}
		}
	}
	if code, out := a.read("GET", confs+"?labelSelector=a+in+(x"+numbers(900)+")", ""); code != 200 {
		t.Errorf("a large selector below the limit: %d %v", code, out)
	}
}

// numbers returns ",0,1,2…".
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteByte(',')
		b.WriteString(strings.Repeat("v", 1+i%7))
		b.WriteString(string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)))
	}
	return b.String()
}
