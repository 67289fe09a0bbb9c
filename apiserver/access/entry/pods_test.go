package entry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/testdata/harness"
)

// TestPodsReachAServerOnLoopback: a server that listens on loopback also serves an address that pods can reach, with a
// certificate for that address.
func TestPodsReachAServerOnLoopback(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := Open(Config{Dir: dir, Listen: "127.0.0.1:0", Node: "n1", Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	moved := a.Moved(ctx)
	go func() {
		ended <- a.ListenForPods(ctx, netip.MustParseAddr("127.0.0.2"), netip.MustParsePrefix("10.88.0.0/24").Contains)
	}()
	go func() { ended <- a.Serve(ctx, hello, hello, zap.NewNop()) }()
	select {
	case <-moved:
	case <-time.After(harness.Bound):
		t.Fatal("the address is never advertised")
	}
	at, err := a.Advertised()
	if err != nil || at.Addr().String() != "127.0.0.2" {
		t.Fatalf("advertised: %s, %v", at, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + at.String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "hello" {
		t.Errorf("%q, %v", body, err)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A change right after the call of Moved is reported.
func TestMovedMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			a := &Entry{pods: podListen{moved: make(chan struct{})}}
			ctx, cancel := context.WithCancel(t.Context())
			moved := a.Moved(ctx)
			a.pods.set(netip.MustParseAddrPort("127.0.0.2:6443"))
			synctest.Wait()
			if len(moved) != 1 {
				t.Fatal("not reported")
			}
			cancel()
			synctest.Wait()
		}
	})
}
