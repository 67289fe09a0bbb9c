package harness

import (
	"net"
	"net/http"
	"os"
	"testing"

	"monopod/apiserver/kit/local"
)

// DataFolder returns the data folder of a fake server: handler answers on its socket until the test ends.
func DataFolder(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "df") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", local.Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return dir
}
