package flow

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/access/auth"
)

// Limits are what one client can cost the others. The zero value is upstream's,
// whose flags these are; a number below 0 is no limit.
type Limits struct {
	MaxRequestsInflight         int           // reads under way; 0: 400
	MaxMutatingRequestsInflight int           // writes under way; 0: 200
	RequestTimeout              time.Duration // of all but watches and streams; 0: a minute
	MinRequestTimeout           time.Duration // of watches, at least; they end within twice that. 0: half an hour
	MaxLongRunningPerUser       int           // watches and streams that one user has open; 0: 2000
	MaxBodyMemory               int           // what decoding the bodies under way takes, in bytes; 0: 64 MiB
}

const (
	// queueLength is how many requests of one user wait while the server is full,
	// and queueWait how long (upstream: a priority level's queueLengthLimit, and a
	// quarter of the request timeout).
	queueLength = 50
	queueWait   = 15 * time.Second
	// maxBodyMemory suits a machine of 512 MB: a body of 1 MiB of text takes 3 MiB, an
	// object of 1,000 containers 4 MiB.
	maxBodyMemory = 64 << 20
)

// Flags adds upstream's flags.
func (l *Limits) Flags(f *pflag.FlagSet) {
	d := l.complete()
	f.IntVar(&l.MaxRequestsInflight, "max-requests-inflight", d.MaxRequestsInflight, "Maximum number of read requests in flight, watches and streams not counted. -1: no limit.")
	f.IntVar(&l.MaxMutatingRequestsInflight, "max-mutating-requests-inflight", d.MaxMutatingRequestsInflight, "Maximum number of mutating requests in flight. -1: no limit.")
	f.DurationVar(&l.RequestTimeout, "request-timeout", d.RequestTimeout, "Time after which a request times out, unless it is a watch or a stream.")
	f.DurationVar(&l.MinRequestTimeout, "min-request-timeout", d.MinRequestTimeout, "Minimum time after which the server ends a watch whose client sets no timeout.")
	f.IntVar(&l.MaxLongRunningPerUser, "max-longrunning-requests-per-user", d.MaxLongRunningPerUser, "Maximum number of watches and streams that one user may have open; each 4 KiB of a request's URL and headers counts as one more. All users together may have twice as many, an administrator or a node five times as many. -1: no limit.")
	f.IntVar(&l.MaxBodyMemory, "max-body-memory", d.MaxBodyMemory, "Maximum memory that decoding the request bodies in flight takes, in bytes; a body that needs more alone is refused. -1: no limit.")
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

func exempt(user auth.User) bool {
	return slices.Contains(user.Groups, auth.Masters) || slices.Contains(user.Groups, "system:nodes")
}

// timeLimit is the server's, or what the client asks for if that is less.
func (g *Gate) timeLimit(r *http.Request) (time.Duration, error) {
	limit := g.limits.RequestTimeout
	if !strings.Contains(r.URL.RawQuery, "timeout=") {
		return limit, nil
	}
	text := r.URL.Query().Get("timeout")
	if text == "" {
		return limit, nil
	}
	asked, err := time.ParseDuration(text)
	if err != nil || asked < 0 {
		return 0, apierrors.NewBadRequest("invalid timeout specified in the request URL")
	}
	if asked > 0 {
		limit = min(limit, asked)
	}
	return limit, nil
}
