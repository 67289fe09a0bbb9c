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
	st := &watchStream{enc: enc, ends: ends, bookmarks: opts.AllowWatchBookmarks}
	if auth.IsWebSocket(r) {
		return s.watchSocket(ctx, w, r, st, start, opts)
	}
	w.Header().Set("Content-Type", enc.contentType())
	w.WriteHeader(http.StatusOK)
	st.out, st.wait.dirty = overHTTP{w, http.NewResponseController(w)}, true // the header is sent at once
	// A webhook that converts objects is called with the request's context, and may take time.
	if st.begin(ctx, start, opts) && (view.Converts(res) || !st.later(r)) {
		st.follow(ctx, r.Context().Done())
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
	ends      time.Time
	ctx       context.Context // for webhooks that convert objects
	wait      waiting
	// bookmarkAt is when the next bookmark is due, unless the watch has none.
	bookmarkAt time.Time
	// Frames that are not written yet: those in buf, then held, which other watches share. An event alone is written
	// without a copy.
	buf  []byte
	held []byte
	err  error // the client has left
	// ended is set when nothing is to be sent after what is there.
	ended bool
}

// begin sends the response's header, and the objects with which the watch begins. It returns false if nothing follows.
func (st *watchStream) begin(ctx context.Context, start watchStart, opts request.ListOptions) bool {
	st.first(ctx, start, opts)
	st.flush()
	return st.err == nil && !st.ended
}

func (st *watchStream) first(ctx context.Context, start watchStart, opts request.ListOptions) {
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

// later follows the changes after the handlers have returned. It returns false if the request ends with them.
func (st *watchStream) later(r *http.Request) bool {
	q := outlive.Later(r, st.step, st.left)
	if q == nil {
		return false
	}
	st.enter(context.Background(), q)
	q.End(func(failure any) any { st.enc.s.crowds.leave(st); return failure })
	return true
}

// follow sends changes until the watch ends, or gone is closed because the client has left.
func (st *watchStream) follow(ctx context.Context, gone <-chan struct{}) {
	q := outlive.Alone(st.step, st.left)
	st.enter(ctx, q)
	defer st.enc.s.crowds.leave(st)
	q.Run(gone)
}

func (st *watchStream) enter(ctx context.Context, q *outlive.Request) {
	st.ctx, st.wait.request, st.bookmarkAt = ctx, q, st.enc.s.Clock.Now().Add(bookmarkEvery)
	st.enc.s.crowds.enter(st)
}

func (st *watchStream) left() { st.enc.s.crowds.left(st) }

// step sends the changes that are there. It returns false if the watch waits for others, in its crowd, which resumes it: then the next step may
// have begun already.
func (st *watchStream) step() (over bool) {
	for rounds := 0; st.err == nil && !st.stopped(); rounds++ {
		wake := st.advance()
		if wake == nil && !st.ended {
			if !st.wait.together || rounds < maxRounds {
				continue
			}
			st.wait.stuck = true
		}
		st.flush()
		switch {
		case st.err != nil:
		case st.wait.stuck: // and others of its crowd wait for this one
			st.wait.stuck, st.wait.together = false, false
			st.enc.s.Guard.Spawn("watches", st.wait.request.Resume)
			return false
		case st.ended:
			return true
		case st.enc.s.crowds.park(st, wake):
			return false
		}
	}
	return true
}

// maxRounds is how often a watch reads changes while others wait for it.
const maxRounds = 8

// advance takes what is to be sent. It returns what is closed when there is more, nil if there is already.
func (st *watchStream) advance() (wake <-chan struct{}) {
	if st.due(); st.ended {
		return nil
	}
	wake, open := st.read(st.ctx)
	st.ended = st.ended || !open
	return wake
}

// stopped reports whether the watch ends without a last word.
func (st *watchStream) stopped() bool {
	return st.wait.gone.Load() || st.enc.s.Stop.Err() != nil || closed(st.changes.Closed())
}

// next is when a bookmark or the end of the watch is due.
func (st *watchStream) next() time.Time {
	if st.bookmarks && st.bookmarkAt.Before(st.ends) {
		return st.bookmarkAt
	}
	return st.ends
}

// due adds what is due: a bookmark now and then, and the end of the watch. A last bookmark lets the client's next watch continue from there.
func (st *watchStream) due() {
	now := st.enc.s.Clock.Now()
	if st.ended || now.Before(st.next()) {
		return
	}
	if st.bookmarks {
		st.bookmark(nil)
		st.bookmarkAt = st.bookmarkAt.Add(max(bookmarkEvery, now.Sub(st.bookmarkAt).Truncate(bookmarkEvery)+bookmarkEvery))
	}
	st.ended = !now.Before(st.ends)
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

func (st *watchStream) event(ctx context.Context, ev *store.Event) {
	switch {
	case ev.Lagged():
		st.refuse(codec.StatusOf(apierror.Expired("too old resource version: the watch fell behind")))
		return
	case !ev.Progress():
		typ, e := registry.Seen(st.sel, ev)
		frame, err := st.enc.shared(ctx, typ, e)
		if err != nil { // an object that cannot be converted ends the watch, as upstream
			st.refuse(codec.StatusOf(err))
			return
		}
		st.write(frame, nil)
	}
	st.rev = ev.Rev
}

// refuse ends the watch with an ERROR event.
func (st *watchStream) refuse(status *metav1.Status) {
	if st.ended {
		return
	}
	object, err := st.enc.status(status)
	st.add(watch.Error, object, err)
	st.ended = true
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
	if st.err = errors.Join(st.err, err); st.err != nil || st.ended {
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
	size := len(st.buf) + len(st.held)
	if size == 0 {
		return
	}
	if st.wait.together && !st.wait.request.Reserve(size) { // others must not wait for its client
		st.wait.stuck = true
		return
	}
	for _, frames := range [][]byte{st.buf, st.held} {
		if len(frames) > 0 && st.err == nil {
			st.err, st.wait.dirty = st.out.write(frames), true
		}
	}
	st.buf, st.held = st.buf[:0], nil
}

// flush sends the frames to the client. A quiet watch keeps no buffer.
func (st *watchStream) flush() {
	if st.err != nil {
		return
	}
	if st.drain(); st.wait.stuck {
		return
	}
	st.enc.s.release(st.buf)
	st.buf = nil
	if st.wait.dirty && st.err == nil {
		st.wait.dirty, st.err = false, st.out.flush()
	}
}
