package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"text/tabwriter"
	"time"
)

func (r *run) crashAfter(ctx context.Context, args []string) int {
	d, err := duration(args[0])
	if err != nil {
		return r.misused(err)
	}
	return r.serveFor(ctx, d, r.exit(ctx, args[1:]))
}

// serveFor answers requests until the program is stopped, also while it stops, or until d is over (negative:
// never), and then exits with code.
func (r *run) serveFor(ctx context.Context, d time.Duration, code int) int {
	address := cmp.Or(r.listen, r.defaultAddress())
	listener, err := r.System.Listen("tcp", address)
	if err != nil {
		return r.failed(err)
	}
	if r.tls {
		if listener, err = secured(listener); err != nil {
			return r.failed(err)
		}
	}
	server := &http.Server{Handler: r.pages(), Protocols: protocols(), ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	r.logf("%s listens on %s", r.podName(), listener.Addr())

	if c, over := r.pause(ctx, d); over {
		code = c
	}
	server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return r.failed(err)
	}
	return code
}

func (r *run) podName() string { return cmp.Or(r.getenv("POD_NAME"), r.Hostname) }

// answer returns the greeting: the host name, and the pod's data in the environment (POD_NAME, POD_NAMESPACE, POD_IP,
// NODE_NAME, MESSAGE).
func (r *run) answer(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests++
	count := r.requests
	r.mu.Unlock()
	r.logf("%s %s from %s", req.Method, req.URL.Path, req.RemoteAddr)

	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "Hello from %s!\n\n", r.podName())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer table.Flush()
	for _, row := range [][2]string{
		{"namespace", r.getenv("POD_NAMESPACE")},
		{"node", r.getenv("NODE_NAME")},
		{"address", r.getenv("POD_IP")},
		{"host name", r.Hostname},
		{"message", r.getenv("MESSAGE")},
		{"path", req.URL.Path},
		{"request", fmt.Sprint(count)},
	} {
		if row[1] != "" {
			fmt.Fprintf(table, "%s\t%s\n", row[0], row[1])
		}
	}
}
