package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/registry"
	"monopod/store"
)

const (
	// minWatch is the shortest time after which the server ends a watch whose
	// client did not say; it ends within twice that (upstream: min-request-timeout).
	minWatch = 30 * time.Minute
	// bookmarkEvery is how often a quiet watch hears how far it is.
	bookmarkEvery = time.Minute
)

// watch streams changes until the client leaves, time is up, or it lags.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target, opts listOptions) error {
	f, err := negotiate(r, "Table", "PartialObjectMetadata", "PartialObjectMetadataList")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), watchTime(opts))
	defer cancel()
	defer context.AfterFunc(s.stop, cancel)()

	initial, rev, err := s.watchStart(ctx, opts)
	if err != nil {
		return err
	}
	changes, sel, err := s.registry.Changes(ctx, opts.sel, rev)
	if err != nil {
		return err
	}
	enc, err := newEncoder(r, t.res, f, s)
	if err != nil {
		return err
	}
	s.counters.watches.Inc()
	defer s.counters.watches.Dec()
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(http.StatusOK)
	st := &watchStream{w: w, flush: http.NewResponseController(w).Flush, enc: enc, rev: rev}
	for _, e := range initial {
		st.send(watch.Added, e)
	}
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents && opts.AllowWatchBookmarks {
		st.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	st.run(ctx, changes, sel, opts.AllowWatchBookmarks, s)
	return nil
}

// watchTime is how long the watch may take: what the client asked for, or some
// time between minWatch and twice that, so that not all come back at once.
func watchTime(opts listOptions) time.Duration {
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		return time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	return minWatch + rand.N(minWatch)
}

// watchStart is what a watch sends before the changes, and the revision they
// start from: everything there is when the client names no revision or asks for
// initial events, else nothing.
func (s *Server) watchStart(ctx context.Context, opts listOptions) ([]*store.Entry, int64, error) {
	asked := opts.SendInitialEvents
	if (asked == nil && opts.rev > 0) || (asked != nil && !*asked && opts.rev > 0) {
		return nil, opts.rev, nil
	}
	if asked != nil && !*asked {
		return nil, s.registry.Revision(), nil
	}
	entries, rev, err := s.registry.Entries(ctx, opts.sel)
	if err == nil && opts.rev > rev {
		err = registry.ErrFutureRevision(opts.rev, rev)
	}
	return entries, rev, err
}

// watchStream writes the events of one watch.
type watchStream struct {
	w     http.ResponseWriter
	flush func() error
	enc   *encoder
	rev   int64 // everything up to here was sent
	buf   []byte
	err   error // the client went away
}

func (st *watchStream) run(ctx context.Context, changes <-chan *store.Event, sel store.Selector, bookmarks bool, s *Server) {
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
				return
			}
			st.event(ev, sel)
			continue
		default: // nothing waits: what was written goes out
			st.err = st.flush()
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
			return
		}
	}
}

func (st *watchStream) event(ev *store.Event, sel store.Selector) {
	switch {
	case ev.Lagged():
		status := statusOf(registry.ErrExpired("too old resource version: the watch fell behind"))
		data, err := json.Marshal(status)
		st.write(watch.Error, data, err)
		return
	case !ev.Progress():
		typ, e := registry.Seen(sel, ev)
		if e, st.err = registry.Shown(st.enc.res, e); st.err != nil {
			return
		}
		st.send(typ, e)
	}
	st.rev = ev.Rev
}

func (st *watchStream) send(typ watch.EventType, e *store.Entry) {
	data, err := st.enc.encode(e)
	st.write(typ, data, err)
}

// bookmark tells how far the watch is, in an object with nothing but that.
func (st *watchStream) bookmark(annotations map[string]string) {
	data, err := st.enc.bookmark(strconv.FormatInt(st.rev, 10), annotations)
	st.write(watch.Bookmark, data, err)
}

func (st *watchStream) write(typ watch.EventType, object []byte, err error) {
	if st.err != nil || err != nil {
		st.err = err
		return
	}
	st.buf = append(st.buf[:0], `{"type":"`...)
	st.buf = append(st.buf, typ...)
	st.buf = append(st.buf, `","object":`...)
	st.buf = append(st.buf, object...)
	st.buf = append(st.buf, "}\n"...)
	_, st.err = st.w.Write(st.buf)
}

// encoder gives objects the shape that the client of a watch wants.
type encoder struct {
	res     *registry.Resource
	as      string
	include metav1.IncludeObjectPolicy
	headed  bool // a Table's columns were sent
	s       *Server
}

func newEncoder(r *http.Request, res *registry.Resource, f format, s *Server) (*encoder, error) {
	include, err := includeObject(r)
	return &encoder{res: res, as: f.as, include: include, s: s}, err
}

func (e *encoder) encode(entry *store.Entry) ([]byte, error) {
	switch e.as {
	case "":
		return entry.JSON, nil
	case "Table":
		t := newTable(e.res, e.include)
		if e.headed {
			t.ColumnDefinitions = nil
		}
		e.headed = true
		t.ResourceVersion = entry.Object.GetResourceVersion()
		if err := t.add(entry, e.s.now()); err != nil {
			return nil, err
		}
		return json.Marshal(t)
	}
	return json.Marshal(partial(entry.Object))
}

func (e *encoder) bookmark(resourceVersion string, annotations map[string]string) ([]byte, error) {
	meta, err := json.Marshal(annotations)
	if err != nil {
		return nil, err
	}
	kind, version := e.res.Kind, e.res.GVR.GroupVersion().String()
	switch e.as {
	case "Table":
		return json.Marshal(&metav1.Table{
			TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: metav1.SchemeGroupVersion.String()},
			ListMeta: metav1.ListMeta{ResourceVersion: resourceVersion},
			Rows:     []metav1.TableRow{},
		})
	case "":
	default:
		kind, version = "PartialObjectMetadata", metav1.SchemeGroupVersion.String()
	}
	extra := ""
	if len(annotations) > 0 {
		extra = `,"annotations":` + string(meta)
	}
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":%q,"creationTimestamp":null%s}}`,
		kind, version, resourceVersion, extra), nil
}
