package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// freePort returns a free port.
func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func TestHealthChecks(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	h := NewHealthChecks(ctx, nil, zap.NewNop())
	key := types.NamespacedName{Namespace: "default", Name: "web"}
	port := freePort(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func() string {
		resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		if err != nil {
			return "closed"
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		if weight := resp.Header.Get("X-Load-Balancing-Endpoint-Weight"); !strings.Contains(string(body), `"localEndpoints":`+
			weight+`,`) {
			t.Errorf("the header has the weight %q, the body is %s", weight, body)
		}
		return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(body)))
	}
	for _, step := range []struct {
		port  int32
		local int
		want  string
	}{
		{port, 0, `503 {"localEndpoints":0,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`},
		{port, 2, `200 {"localEndpoints":2,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`},
		{0, 2, "closed"},
		{port, 1, `200 {"localEndpoints":1,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`},
	} {
		h.Set(key, step.port, step.local)
		if got := ask(); got != step.want {
			t.Errorf("port %d, %d endpoints: %q, want %q", step.port, step.local, got, step.want)
		}
	}
	cancel()
	h.Wait()
	if got := ask(); got != "closed" {
		t.Errorf("answer after the end of the context: %q", got)
	}
}
