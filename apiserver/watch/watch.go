package watch

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/request"
	"monopod/store"
)

// bookmarkEvery is how often a quiet watch hears how far it is.
const bookmarkEvery = time.Minute

// Serve streams changes until the client leaves, time is up, or it lags.
func (s *Watcher) Serve(w http.ResponseWriter, r *http.Request, res *kind.Resource, opts request.ListOptions) error {
	f, err := codec.NegotiateStream(r)
	if err != nil {
		return err
	}
	enc, err := newEncoder(r, res, f, s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.watchTime(opts))
	defer cancel()
	defer context.AfterFunc(s.Stop, cancel)()
	start, err := s.watchStart(ctx, opts)
	if err != nil {
		return err
	}
	if auth.IsWebSocket(r) {
		return s.watchSocket(ctx, w, r, enc, start, opts)
	}
	w.Header().Set("Content-Type", enc.contentType())
	w.WriteHeader(http.StatusOK)
	st := &watchStream{out: overHTTP{w, http.NewResponseController(w)}, enc: enc}
	st.run(ctx, start, opts, s)
	return nil
}

// watchTime is how long the watch may take: what the client asked for, or some
// time between the shortest and twice that, so that not all come back at once.
func (s *Watcher) watchTime(opts request.ListOptions) time.Duration {
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		return time.Duration(min(*opts.TimeoutSeconds, math.MaxInt32)) * time.Second
	}
	return s.MinTime + rand.N(s.MinTime)
}

// watchStart is where a watch begins.
type watchStart struct {
	initial []*store.Entry // sent before the changes
	rev     int64          // the changes come after it
	changes <-chan *store.Event
	sel     store.Selector
	// refused is what the watch has to say at once, and nothing else.
	refused *metav1.Status
}

// watchStart begins with everything there is when the client names no revision
// or asks for initial events, else with nothing. A revision that left the
// history is an event, as upstream has it, not an answer.
func (s *Watcher) watchStart(ctx context.Context, opts request.ListOptions) (watchStart, error) {
	var start watchStart
	var err error
	start.initial, start.rev, err = s.watchFrom(ctx, opts)
	if err != nil {
		return start, err
	}
	start.changes, start.sel, err = s.API.Changes(ctx, opts.Sel, start.rev)
	if apierrors.IsResourceExpired(err) {
		return watchStart{refused: codec.StatusOf(err)}, nil
	}
	return start, err
}

func (s *Watcher) watchFrom(ctx context.Context, opts request.ListOptions) ([]*store.Entry, int64, error) {
	asked := opts.SendInitialEvents
	if (asked == nil || !*asked) && opts.Rev > 0 {
		return nil, opts.Rev, nil
	}
	if asked != nil && !*asked {
		return nil, s.API.Revision(), nil
	}
	entries, rev, err := s.API.Entries(ctx, opts.Sel)
	if err == nil && opts.Rev > rev {
		err = registry.ErrFutureRevision(opts.Rev, rev)
	}
	return entries, rev, err
}

// pipe is what carries the events of a watch: frames, any number at a time.
type pipe interface {
	write(frames []byte) error
	flush() error
}

type overHTTP struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o overHTTP) write(frames []byte) error {
	_, err := o.w.Write(frames)
	return err
}

func (o overHTTP) flush() error { return o.control.Flush() }

const (
	// pending is how much a watch gathers before it writes, while more events wait,
	// and kept what it keeps of its buffer when none do, in bytes.
	pending = 32 << 10
	kept    = 2 << 10
)

// watchStream writes the events of one watch.
type watchStream struct {
	out pipe
	enc *encoder
	rev int64  // everything up to here was sent
	buf []byte // frames not yet written
	err error  // the client went away
}

func (st *watchStream) run(ctx context.Context, start watchStart, opts request.ListOptions, s *Watcher) {
	if start.refused != nil {
		st.refuse(start.refused)
		return
	}
	st.rev = start.rev
	for _, e := range start.initial {
		st.send(watch.Added, e)
	}
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents && opts.AllowWatchBookmarks {
		st.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	start.initial = nil // a long watch needs it no more
	st.follow(ctx, start.changes, start.sel, opts.AllowWatchBookmarks, s)
}

// follow sends the changes until ctx ends or they do.
func (st *watchStream) follow(ctx context.Context, changes <-chan *store.Event, sel store.Selector, bookmarks bool, s *Watcher) {
	var tick <-chan time.Time
	if bookmarks {
		t := s.Clock.NewTicker(bookmarkEvery)
		defer t.Stop()
		tick = t.C()
	}
	for st.err == nil {
		select {
		case ev, ok := <-changes:
			if !ok {
				st.flush()
				return
			}
			st.event(ev, sel)
			continue
		default: // nothing waits: what was gathered goes out
			if st.flush(); st.err != nil {
				return
			}
		}
		select {
		case ev, ok := <-changes:
			if !ok {
				return
			}
			st.event(ev, sel)
		case <-tick:
			st.bookmark(nil)
		case <-ctx.Done():
			st.last(ctx, bookmarks)
			return
		}
	}
}

// last tells a client whose time is up how far it is, so that its next watch
// goes on from there.
func (st *watchStream) last(ctx context.Context, bookmarks bool) {
	if bookmarks && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		st.bookmark(nil)
		st.flush()
	}
}

func (st *watchStream) event(ev *store.Event, sel store.Selector) {
	switch {
	case ev.Lagged():
		st.refuse(codec.StatusOf(registry.ErrExpired("too old resource version: the watch fell behind")))
		return
	case !ev.Progress():
		typ, e := registry.Seen(sel, ev)
		frame, err := st.enc.shared(typ, e)
		st.write(frame, err)
	}
	st.rev = ev.Rev
}

// refuse ends the watch with an error that is an event.
func (st *watchStream) refuse(status *metav1.Status) {
	object, err := st.enc.status(status)
	st.add(watch.Error, object, err)
	st.flush()
}

func (st *watchStream) send(typ watch.EventType, e *store.Entry) {
	object, err := st.enc.object(e)
	st.add(typ, object, err)
}

// bookmark tells how far the watch is, in an object with nothing but that.
func (st *watchStream) bookmark(annotations map[string]string) {
	object, err := st.enc.bookmark(strconv.FormatInt(st.rev, 10), annotations)
	st.add(watch.Bookmark, object, err)
}

func (st *watchStream) add(typ watch.EventType, object []byte, err error) {
	if err == nil {
		st.buf = st.enc.frame(st.buf, typ, object)
	}
	st.write(nil, err)
}

// write gathers frames until there are enough of them.
func (st *watchStream) write(frame []byte, err error) {
	st.err = errors.Join(st.err, err)
	if st.err != nil {
		return
	}
	st.buf = append(st.buf, frame...)
	if len(st.buf) >= pending || st.enc.bare {
		st.err = st.out.write(st.buf)
		st.buf = st.buf[:0]
	}
}

// flush sends what was gathered. A watch that becomes quiet keeps no large buffer.
func (st *watchStream) flush() {
	if st.err != nil {
		return
	}
	if len(st.buf) > 0 {
		st.err = st.out.write(st.buf)
	}
	st.buf = st.buf[:0]
	if cap(st.buf) > kept {
		st.buf = nil
	}
	st.err = errors.Join(st.err, st.out.flush())
}
