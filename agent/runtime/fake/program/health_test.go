package program

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func TestPages(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"/web"}, {"/web", "-tls"}} {
		system := onListen{address: make(chan string, 1)}
		server := start(t.Context(), system, nil, flags...)
		address := <-system.address
		scheme := map[int]string{1: "http://", 2: "https://"}[len(flags)]
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true} //nolint:gosec // the certificate is self-signed
		for path, want := range map[string]int{
			"/status/503": 503, "/status/42": 404, "/file" + file: 200, "/file/nowhere": 404,
			"/header/X-A/b": 200, "/header/X-A/c": 400,
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+address+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-A", "b")
			resp, err := (&http.Client{Transport: transport}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s%s: %d, want %d", scheme, path, resp.StatusCode, want)
			}
		}
		if scheme == "http://" {
			healthy(t.Context(), t, address)
		}
		server.signals <- syscall.SIGTERM
		<-server.code
	}
}

func healthy(ctx context.Context, t *testing.T, address string) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", resp, err)
	}
}
