package flow

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/auth"
)

// Limits limit the load from clients. The zero value has upstream's defaults, under upstream's flags; a negative
// number disables a limit.
type Limits struct {
	MaxRequestsInflight         int           // 0: 400
	MaxMutatingRequestsInflight int           // 0: 200; the sum of both is the limit of requests in flight
	RequestTimeout              time.Duration // of requests other than watches and streams; 0: 1m
	MinRequestTimeout           time.Duration // minimum duration of watches, which end within twice that; 0: 30m
	MaxLongRunningPerUser       int           // open watches and streams of one user; 0: 2000
	MaxBodyMemory               int           // memory for decoding the bodies in flight, in bytes; 0: 64 MiB
}

const (
	// queueLength is the maximum number of a user's requests that wait for memory, and queueWait how long requests wait
	// (upstream: a quarter of the request timeout).
	queueLength = 50
	queueWait   = 15 * time.Second
	// maxBodyMemory suits a machine with 512 MB: a body of 1 MiB of text takes 3 MiB, an object with 1,000
	// containers 4 MiB.
	maxBodyMemory = 64 << 20
)

// Flags adds upstream's flags.
func (l *Limits) Flags(f *pflag.FlagSet) {
	d := l.complete()
	f.IntVar(&l.MaxRequestsInflight, "max-requests-inflight", d.MaxRequestsInflight,
		"Maximum number of requests in flight, together with --max-mutating-requests-inflight: "+
			"priority levels share the sum. Watches and streams are not counted. -1: no limit.")
	f.IntVar(&l.MaxMutatingRequestsInflight, "max-mutating-requests-inflight", d.MaxMutatingRequestsInflight,
		"Maximum number of requests in flight, together with --max-requests-inflight. -1: no limit.")
	f.DurationVar(&l.RequestTimeout, "request-timeout", d.RequestTimeout,
		"Time after which a request times out, unless it is a watch or a stream.")
	f.DurationVar(&l.MinRequestTimeout, "min-request-timeout", d.MinRequestTimeout,
		"Minimum time after which the server ends a watch whose client sets no timeout.")
	f.IntVar(&l.MaxLongRunningPerUser, "max-longrunning-requests-per-user", d.MaxLongRunningPerUser,
		"Maximum number of open watches and streams of one user; each 4 KiB of a request's URL and headers counts as "+
			"one more. All users together can have twice as many, an administrator or a node five times as many. "+
			"-1: no limit.")
	f.IntVar(&l.MaxBodyMemory, "max-body-memory", d.MaxBodyMemory,
		"Maximum memory in bytes for decoding the request bodies in flight; a body that needs more by itself is refused. "+
			"-1: no limit.")
}

func (l Limits) complete() Limits {
	return Limits{
		MaxRequestsInflight:         cmp.Or(l.MaxRequestsInflight, 400),
		MaxMutatingRequestsInflight: cmp.Or(l.MaxMutatingRequestsInflight, 200),
		RequestTimeout:              cmp.Or(l.RequestTimeout, time.Minute),
		MinRequestTimeout:           cmp.Or(l.MinRequestTimeout, 30*time.Minute),
		MaxLongRunningPerUser:       cmp.Or(l.MaxLongRunningPerUser, 2000),
		MaxBodyMemory:               cmp.Or(l.MaxBodyMemory, maxBodyMemory),
	}
}

// seats returns the number of requests in flight of all priority levels; 0: no limit.
func (l Limits) seats() int {
	if l.MaxRequestsInflight < 0 || l.MaxMutatingRequestsInflight < 0 {
		return 0
	}
	return l.MaxRequestsInflight + l.MaxMutatingRequestsInflight
}

func exempt(user auth.User) bool {
	return slices.Contains(user.Groups, auth.Masters) || slices.Contains(user.Groups, "system:nodes")
}

// timeLimit returns the server's request timeout, or the client's if that is shorter.
func (g *Gate) timeLimit(r *http.Request) (time.Duration, error) {
	limit := g.limits.RequestTimeout
	if !strings.Contains(r.URL.RawQuery, "timeout=") {
		return limit, nil
	}
	text := r.URL.Query().Get("timeout")
	if text == "" {
		return limit, nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout < 0 {
		return 0, apierrors.NewBadRequest("invalid timeout specified in the request URL")
	}
	if timeout > 0 {
		limit = min(limit, timeout)
	}
	return limit, nil
}
