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
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/view"
	"monopod/apiserver/request"
	"monopod/store"
)

// bookmarkEvery is the interval of bookmarks on a quiet watch.
const bookmarkEvery = time.Minute

// Serve streams changes until the client leaves, the watch times out, or it falls behind.
func (s *Watcher) Serve(w http.ResponseWriter, r *http.Request, res *kind.Resource, opts request.ListOptions) error {
	f, err := codec.NegotiateStream(r, res)
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

// watchTime is the duration of the watch: the client's timeout, or a random time between the minimum and twice
// that, so that clients do not reconnect at the same time.
func (s *Watcher) watchTime(opts request.ListOptions) time.Duration {
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		return time.Duration(min(*opts.TimeoutSeconds, math.MaxInt32)) * time.Second
	}
	return s.MinTime + rand.N(s.MinTime)
}

// watchStart is the start of a watch.
type watchStart struct {
	initial []*store.Entry // sent before the changes
	rev     int64          // changes start after it
	changes *store.Changes
	sel     store.Selector
	// refused is an error that the watch sends at once as its only event.
	refused *metav1.Status
}

// watchStart starts with all objects if the client sends no revision or requests initial events, otherwise with
// none. A revision that is no longer in the history causes an event, as upstream, not an error response.
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
		err = apierror.FutureRevision(opts.Rev, rev)
	}
	return entries, rev, err
}

// pipe sends the events of a watch: any number of frames at a time.
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
	// pending is how much a watch buffers before it writes while more events wait, and maxBuffer how large a buffer
	// other watches use again, in bytes.
	pending   = 32 << 10
	maxBuffer = 4 * pending
	// together is how much is copied to be written at once, in bytes: a frame of HTTP/2 has at most 16 KB.
	together = 16 << 10
)

// watchStream writes the events of one watch.
type watchStream struct {
	out pipe
	enc *encoder
	rev int64 // everything up to this revision is sent
	// Frames that are not written yet: those in buf, then held, which other watches share. An event alone is written
	// without a copy.
	buf  []byte
	held []byte
	err  error // the client has left
}

func (st *watchStream) run(ctx context.Context, start watchStart, opts request.ListOptions, s *Watcher) {
	if start.refused != nil {
		st.refuse(start.refused)
		return
	}
	st.rev = start.rev
	for e, err := range view.Each(ctx, st.enc.res, start.initial) {
		if err != nil {
			st.refuse(codec.StatusOf(err))
			return
		}
		object, err := st.enc.object(e)
		st.add(watch.Added, object, err)
	}
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents && opts.AllowWatchBookmarks {
		st.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	start.initial = nil // so that it can be freed
	st.follow(ctx, start.changes, start.sel, opts.AllowWatchBookmarks, s)
}

// follow sends changes until ctx ends or there are no more.
func (st *watchStream) follow(ctx context.Context, changes *store.Changes, sel store.Selector, bookmarks bool, s *Watcher) {
	var tick <-chan time.Time
	if bookmarks {
		t := s.Clock.NewTicker(bookmarkEvery)
		defer t.Stop()
		tick = t.C()
	}
	group, leave := s.pace.enter(sel.Resource)
	defer leave()
	for st.err == nil {
		wake, open := st.read(ctx, changes, sel)
		if wake == nil && open && ctx.Err() == nil {
			continue
		}
		if st.flush(); st.err != nil || !open {
			return
		}
		select {
		case <-s.pace.after(group, wake):
		case <-tick:
			st.bookmark(nil)
		case <-changes.Closed():
			return
		case <-ctx.Done():
			st.last(ctx, bookmarks)
			return
		}
	}
}

// read takes the changes that are there. Its buffer is on the stack, so that a quiet watch keeps none.
func (st *watchStream) read(ctx context.Context, changes *store.Changes, sel store.Selector) (wake <-chan struct{}, open bool) {
	var buf [32]*store.Event
	events, wake, open := changes.Read(buf[:0])
	for _, ev := range events {
		st.event(ctx, ev, sel)
	}
	return wake, open
}

// last sends a final bookmark before a timeout, so that the client's next watch continues from there.
func (st *watchStream) last(ctx context.Context, bookmarks bool) {
	if bookmarks && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		st.bookmark(nil)
		st.flush()
	}
}

func (st *watchStream) event(ctx context.Context, ev *store.Event, sel store.Selector) {
	switch {
	case ev.Lagged():
		st.refuse(codec.StatusOf(apierror.Expired("too old resource version: the watch fell behind")))
		return
	case !ev.Progress():
		typ, e := registry.Seen(sel, ev)
		frame, err := st.enc.shared(ctx, typ, e)
		if err != nil && st.err == nil { // an object that cannot be converted ends the watch, as upstream
			st.refuse(codec.StatusOf(err))
		}
		st.write(frame, err)
	}
	st.rev = ev.Rev
}

// refuse ends the watch with an ERROR event.
func (st *watchStream) refuse(status *metav1.Status) {
	object, err := st.enc.status(status)
	st.add(watch.Error, object, err)
	st.flush()
}

// bookmark sends the current revision as a bookmark.
func (st *watchStream) bookmark(annotations map[string]string) {
	object, err := st.enc.bookmark(strconv.FormatInt(st.rev, 10), annotations)
	st.add(watch.Bookmark, object, err)
}

func (st *watchStream) add(typ watch.EventType, object []byte, err error) {
	var frame []byte
	if err == nil {
		st.spill()
		st.buf = st.enc.frame(st.buf, typ, object)
	}
	st.write(frame, err)
}

// write buffers frames until there are enough.
func (st *watchStream) write(frame []byte, err error) {
	st.err = errors.Join(st.err, err)
	if st.err != nil {
		return
	}
	if st.held != nil {
		st.spill()
	}
	st.held = frame
	if len(st.buf)+len(st.held) >= pending || st.enc.bare {
		st.drain()
	}
}

// spill makes room for another frame.
func (st *watchStream) spill() {
	if st.buf == nil {
		st.buf = st.enc.s.buffer()
	}
	st.buf, st.held = append(st.buf, st.held...), nil
}

// drain writes the frames, few of them together: each write is a frame of HTTP/2, for which the watch waits.
func (st *watchStream) drain() {
	if len(st.buf) > 0 && len(st.buf)+len(st.held) < together {
		st.spill()
	}
	for _, frames := range [][]byte{st.buf, st.held} {
		if len(frames) > 0 && st.err == nil {
			st.err = st.out.write(frames)
		}
	}
	st.buf, st.held = st.buf[:0], nil
}

// flush sends the frames to the client. A quiet watch keeps no buffer.
func (st *watchStream) flush() {
	if st.err != nil {
		return
	}
	st.drain()
	if st.err == nil { // HTTP/2 may still read from a buffer after a failed write
		st.enc.s.release(st.buf)
	}
	st.buf = nil
	st.err = errors.Join(st.err, st.out.flush())
}
