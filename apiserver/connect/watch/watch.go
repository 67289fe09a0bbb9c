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
	"monopod/apiserver/request/outlive"
	"monopod/store"
)

// bookmarkEvery is the interval of bookmarks on a quiet watch.
const bookmarkEvery = time.Minute

// beginTime limits how long the store may take until a watch begins.
const beginTime = time.Minute

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
	takes := s.watchTime(opts)
	ends := s.Clock.Now().Add(takes)
	ctx, limit := r.Context(), takes
	if !view.Converts(res) {
		// The request keeps the room for a context that ends with it, and Go keeps a context until its timer would fire.
		ctx, limit = context.WithoutCancel(ctx), min(limit, beginTime)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(s.Stop, cancel)()
	start, err := s.watchStart(ctx, opts)
	if err != nil {
		return err
	}
	st := &watchStream{enc: enc, ends: ends, gone: r.Context().Done(), bookmarks: opts.AllowWatchBookmarks}
	if auth.IsWebSocket(r) {
		return s.watchSocket(ctx, w, r, st, start, opts)
	}
	w.Header().Set("Content-Type", enc.contentType())
	w.WriteHeader(http.StatusOK)
	st.out = overHTTP{w, http.NewResponseController(w)}
	// A webhook that converts objects is called with the request's context.
	if st.begin(ctx, start, opts); view.Converts(res) || !outlive.Later(r, func() { st.follow(context.Background()) }) {
		st.follow(ctx)
	}
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

	changes   *store.Changes
	sel       store.Selector
	bookmarks bool
	gone      <-chan struct{} // closed when the client has left
	ends      time.Time
	// bookmarkAt is when the next bookmark is due, unless the watch has none.
	bookmarkAt time.Time
	// Frames that are not written yet: those in buf, then held, which other watches share. An event alone is written
	// without a copy.
	buf  []byte
	held []byte
	err  error // the client has left, or the watch was refused
}

// errRefused is the err of a watch that has ended with an ERROR event.
var errRefused = errors.New("refused")

// begin sends the objects with which the watch begins.
func (st *watchStream) begin(ctx context.Context, start watchStart, opts request.ListOptions) {
	if start.refused != nil {
		st.refuse(start.refused)
		return
	}
	st.rev, st.changes, st.sel = start.rev, start.changes, start.sel
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
}

// follow sends changes until the watch ends. ctx is for webhooks that convert objects. An idle watch waits below it for hours: what is on its
// stack counts, and what it waits for.
func (st *watchStream) follow(ctx context.Context) {
	if st.err != nil {
		return
	}
	s := st.enc.s
	st.bookmarkAt = s.Clock.Now().Add(bookmarkEvery)
	timer := s.Clock.NewTimer(st.pause())
	defer timer.Stop()
	group, leave := s.pace.enter(st.sel.Resource)
	defer leave()
	for {
		wake, open := st.read(ctx)
		more := wake == nil && open
		if more && !st.over() {
			continue
		}
		if st.flush(); st.err != nil || !open {
			return
		}
		if !more {
			wake = s.pace.after(group, wake)
		}
		select {
		case <-wake:
		case <-timer.C():
			if !st.due() {
				return
			}
			timer.Reset(st.pause())
		case <-st.changes.Closed():
			return
		case <-st.gone:
			return
		case <-s.Stop.Done():
			return
		}
	}
}

// pause is the time until a bookmark or the end of the watch is due.
func (st *watchStream) pause() time.Duration {
	next := st.ends
	if st.bookmarks && st.bookmarkAt.Before(next) {
		next = st.bookmarkAt
	}
	return next.Sub(st.enc.s.Clock.Now())
}

// due sends what is due. It returns false at the end of the watch.
func (st *watchStream) due() bool {
	now := st.enc.s.Clock.Now()
	if !now.Before(st.ends) {
		st.last()
		return false
	}
	if st.bookmarks && !now.Before(st.bookmarkAt) {
		st.bookmark(nil)
		st.bookmarkAt = st.bookmarkAt.Add(max(bookmarkEvery, now.Sub(st.bookmarkAt).Truncate(bookmarkEvery)+bookmarkEvery))
	}
	return true
}

// over reports whether the watch must end although there are more changes.
func (st *watchStream) over() bool {
	select {
	case <-st.gone:
	case <-st.enc.s.Stop.Done():
	default:
		return st.err != nil || !st.enc.s.Clock.Now().Before(st.ends)
	}
	return true
}

// read takes the changes that are there. Its buffer is on the stack, so that a quiet watch keeps none.
func (st *watchStream) read(ctx context.Context) (wake <-chan struct{}, open bool) {
	var buf [32]*store.Event
	events, wake, open := st.changes.Read(buf[:0])
	for _, ev := range events {
		st.event(ctx, ev)
	}
	return wake, open
}

// last sends a final bookmark before a timeout, so that the client's next watch continues from there.
func (st *watchStream) last() {
	if st.bookmarks {
		st.bookmark(nil)
		st.flush()
	}
}

func (st *watchStream) event(ctx context.Context, ev *store.Event) {
	switch {
	case ev.Lagged():
		st.refuse(codec.StatusOf(apierror.Expired("too old resource version: the watch fell behind")))
		return
	case !ev.Progress():
		typ, e := registry.Seen(st.sel, ev)
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
	st.err = errors.Join(st.err, errRefused)
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
