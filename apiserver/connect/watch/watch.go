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

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/registry/convert"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/request"
	"monopod/store"
)

// bookmarkEvery is the interval of bookmarks on a quiet watch.
const bookmarkEvery = time.Minute

// startTimeout limits how long the store may take to start a watch.
const startTimeout = time.Minute

// Serve streams changes until the client leaves, the watch times out, or it falls behind.
func (s *Watcher) Serve(w http.ResponseWriter, r *http.Request, res *kind.Resource, opts request.ListOptions) error {
	f, err := codec.NegotiateStream(r, res)
	if err != nil {
		return err
	}
	include, err := request.IncludeObject(r)
	if err != nil {
		return err
	}
	as := f.As
	if as == "PartialObjectMetadataList" {
		as = "PartialObjectMetadata" // of each object
	}
	enc := &encoder{res: res, media: f.Media, as: as, version: f.Shape, include: include, s: s}
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
	st.run(ctx, start, opts)
	return nil
}

// watchTime returns the duration of the watch: the client's timeout, or a random time between the minimum and twice the
// minimum, so that clients do not reconnect at the same time.
func (s *Watcher) watchTime(opts request.ListOptions) time.Duration {
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		return time.Duration(min(*opts.TimeoutSeconds, math.MaxInt32)) * time.Second
	}
	return s.MinTime + rand.N(s.MinTime)
}

// watchStart describes where a watch starts.
type watchStart struct {
	initial []*store.Entry // sent before the changes
	rev     int64          // changes start after it
	changes *store.Changes
	sel     store.Selector
	// refused is an error that the watch sends as its only event.
	refused error
}

// watchStart starts a watch: with all objects if the client sends no revision or requests initial events, otherwise
// with none. As upstream, a revision that is no longer in the history causes an ERROR event, not an error response.
func (s *Watcher) watchStart(ctx context.Context, opts request.ListOptions) (watchStart, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var start watchStart
	var err error
	start.initial, start.rev, err = s.watchFrom(ctx, opts)
	if err != nil {
		return start, err
	}
	start.changes, start.sel, err = s.API.Changes(ctx, opts.Sel, start.rev)
	if apierrors.IsResourceExpired(err) {
		return watchStart{refused: err}, nil
	}
	return start, err
}

func (s *Watcher) watchFrom(ctx context.Context, opts request.ListOptions) ([]*store.Entry, int64, error) {
	initial := opts.SendInitialEvents
	if (initial == nil || !*initial) && opts.Rev > 0 {
		return nil, opts.Rev, nil
	}
	if initial != nil && !*initial {
		return nil, s.API.Revision(), nil
	}
	entries, rev, err := s.API.Entries(ctx, opts.Sel)
	if err == nil && opts.Rev > rev {
		err = apierror.FutureRevision(opts.Rev, rev)
	}
	return entries, rev, err
}

// pipe sends the events of a watch.
type pipe interface {
	write(frame []byte) error
	flush() error
}

type overHTTP struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o overHTTP) write(frame []byte) error {
	_, err := o.w.Write(frame)
	return err
}

func (o overHTTP) flush() error { return o.control.Flush() }

// watchStream writes the events of one watch.
type watchStream struct {
	out pipe
	enc *encoder
	rev int64 // all events up to this revision have been sent
}

// errGone ends a watch whose client has left or does not read.
var errGone = errors.New("the client has left")

// run sends the initial objects, and changes until ctx ends or the client has left. As upstream, an error, for example
// of a conversion, is the last event.
func (st *watchStream) run(ctx context.Context, start watchStart, opts request.ListOptions) {
	err := st.begin(ctx, start, opts)
	if err == nil {
		start.initial = nil // so that it can be freed
		err = st.follow(ctx, start, opts.AllowWatchBookmarks)
	}
	if err != nil && !errors.Is(err, errGone) {
		object, err := st.enc.status(codec.StatusOf(err))
		_ = st.add(watch.Error, object, err)
		_ = st.out.flush()
	}
}

func (st *watchStream) begin(ctx context.Context, start watchStart, opts request.ListOptions) error {
	if start.refused != nil {
		return start.refused
	}
	st.rev = start.rev
	for e, err := range convert.Each(ctx, st.enc.res, start.initial) {
		if err != nil {
			return err
		}
		object, err := st.enc.object(e)
		if err := st.add(watch.Added, object, err); err != nil {
			return err
		}
	}
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents && opts.AllowWatchBookmarks {
		return st.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return nil
}

// follow sends changes, and bookmarks periodically and before a timeout, so that the client's next watch can continue
// from there.
func (st *watchStream) follow(ctx context.Context, start watchStart, bookmarks bool) error {
	var tick <-chan time.Time
	if bookmarks {
		t := st.enc.s.Clock.NewTicker(bookmarkEvery)
		defer t.Stop()
		tick = t.C()
	}
	for {
		wake, err := st.read(ctx, start)
		if err != nil {
			return err
		}
		if wake == nil && ctx.Err() == nil { // more changes are pending
			continue
		}
		if st.out.flush() != nil {
			return errGone
		}
		select {
		case <-wake:
		case <-tick:
			if err := st.bookmark(nil); err != nil {
				return err
			}
		case <-start.changes.Closed():
			return nil
		case <-ctx.Done():
			if bookmarks && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return st.bookmark(nil)
			}
			return nil
		}
	}
}

// read sends the pending changes. It returns a channel that is closed when there are more, or nil if there are more
// already. Its buffer is on the stack, so that a quiet watch does not keep it.
func (st *watchStream) read(ctx context.Context, start watchStart) (wake <-chan struct{}, err error) {
	var buf [32]*store.Event
	events, wake, _ := start.changes.Read(buf[:0])
	for _, ev := range events {
		if ev.Lagged() {
			return nil, apierror.Expired("too old resource version: the watch fell behind")
		}
		if !ev.Progress() {
			typ, e := registry.EventFor(start.sel, ev)
			frame, err := st.enc.shared(ctx, typ, e)
			if err != nil {
				return nil, err
			}
			if st.out.write(frame) != nil {
				return nil, errGone
			}
		}
		st.rev = ev.Rev
	}
	return wake, nil
}

// bookmark sends the current revision as a bookmark.
func (st *watchStream) bookmark(annotations map[string]string) error {
	object, err := st.enc.bookmark(strconv.FormatInt(st.rev, 10), annotations)
	return st.add(watch.Bookmark, object, err)
}

// add sends an event that other watches do not share. err is the error of encoding its object.
func (st *watchStream) add(typ watch.EventType, object []byte, err error) error {
	if err != nil {
		return err
	}
	if st.out.write(st.enc.frame(nil, typ, object)) != nil {
		return errGone
	}
	return nil
}
