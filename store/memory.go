package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tidwall/btree"
)

// Config of a Memory.
type Config struct {
	// Kind describes a resource; false for one that is not served. Required.
	Kind func(resource string) (Kind, bool)
	// History kept per resource for watches: at most this many events and this
	// many bytes of JSON, whichever is less. Zero: 4096 events, 4 MiB.
	History, HistoryBytes int
}

// Record is one durable write. A nil JSON removes the key.
type Record struct {
	Key  Key
	Rev  int64
	JSON []byte
	// Deletes: a removal, or a step towards one. A log that is full makes room
	// for such records alone.
	Deletes bool
}

// Log makes the writes of a Memory survive. Memory calls it from one goroutine at
// a time.
type Log interface {
	// Commit makes all records and the reserved revision durable before it
	// returns, or none of them; ErrNoSpace: there is no room for them; ErrLost: as
	// Check. No revision above reserved is handed out before a later Commit raised
	// it. The slice is the caller's again when Commit returns.
	Commit(records []Record, reserved int64) error
	// Check fails with ErrLost when what was committed is gone, and Rewrite can bring
	// it back; with another error when nothing can be committed.
	Check() error
	// Rewrite makes records and the reserved revision durable in the place of all
	// that was committed before.
	Rewrite(records []Record, reserved int64) error
	Close() error
}

// reserveBlock is how many revisions are reserved ahead by one commit, so that
// volatile writes, which are never logged, do not reuse one after a crash.
const reserveBlock = 1 << 20

// Memory is a Store that holds everything in memory and, given a Log, writes
// every durable change to it before anybody sees it.
//
// Callers compute and encode the next object on their own goroutines and queue
// it for the writer, which is whoever of them finds the turn free. The writer
// takes all that wait, drops those whose object changed meanwhile (they try
// again), commits the rest at once, publishes them in order and answers. No lock
// but the turn is held over the commit.
type Memory struct {
	cfg    Config
	log    Log // nil: nothing is durable
	writes chan *write
	turn   chan struct{} // holds one token while somebody is the writer

	stop     context.CancelFunc
	stopped  context.Context
	closing  sync.Once
	closed   chan struct{} // closed when nobody will be the writer any more
	closeErr error         // set before closed is

	// The writer's own.
	reserved  int64
	lastBatch int
	touched   map[Key]bool // by the batch; empty between batches
	records   []Record     // of the batch; reused
	unsaved   map[Key]bool // written since the log was told of them, if it ever was
	borrowed  []Record     // removals of what the log kept over a stop only

	encoders sync.Pool // of *encoder
	lost     *turns    // of writes whose object was no more current

	mu     sync.RWMutex // guards rev and tables, never held over I/O
	rev    int64
	tables map[string]*table
}

var _ Store = (*Memory)(nil)

// table is one resource: its objects by "namespace/name" and its last events.
type table struct {
	entries btree.Map[string, *Entry]
	history history
	newest  int64         // the revision of the last change, 0 before the first
	wake    chan struct{} // closed and replaced whenever history grows
}

// write is a request to the writer: replace cur by next at key.
type write struct {
	key       Key
	path      string // of key
	cur       *Entry
	next      Object // nil: remove
	plain     []byte // next encoded without a resourceVersion; until the write is answered
	volatile  bool
	done      chan struct{}
	result    *Entry
	err       error
	published *Event
}

// errStale answers a write whose current object changed meanwhile.
var errStale = errors.New("object changed meanwhile")

// NewMemory starts a Memory that holds entries, at revision rev or the highest
// revision among them. log may be nil. Close ends it.
func NewMemory(cfg Config, log Log, entries []*Entry, rev int64) *Memory {
	stopped, stop := context.WithCancel(context.Background())
	m := &Memory{
		lost: newTurns(),
		cfg:  cfg, log: log,
		writes:  make(chan *write, maxBatch),
		turn:    make(chan struct{}, 1),
		stop:    stop,
		stopped: stopped,
		closed:  make(chan struct{}),
		touched: map[Key]bool{},
		unsaved: map[Key]bool{},
		rev:     max(rev, 1),
		tables:  map[string]*table{},
	}
	for _, e := range entries {
		m.rev = max(m.rev, e.Rev)
	}
	for _, e := range entries {
		t := m.table(e.Key.Resource)
		t.entries.Set(path(e.Key), e)
		t.newest = max(t.newest, e.Rev)
		if k, ok := cfg.Kind(e.Key.Resource); ok && k.volatile(nil, e.Object) {
			m.borrowed = append(m.borrowed, Record{Key: e.Key, Deletes: true})
			m.unsaved[e.Key] = true
		}
	}
	return m
}

// path orders keys within a table by namespace, then name.
func path(k Key) string { return k.Namespace + "/" + k.Name }

// table returns the resource's table, made on first use; m.mu is held for
// writing, or nobody else knows m yet.
func (m *Memory) table(resource string) *table {
	t := m.tables[resource]
	if t == nil {
		t = &table{wake: make(chan struct{}), history: newHistory(m.rev, m.cfg.History, m.cfg.HistoryBytes)}
		m.tables[resource] = t
	}
	return t
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, key Key) (*Entry, error) {
	if e := m.current(key.Resource, path(key)); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("%v: %w", key, ErrNotFound)
}

func (m *Memory) current(resource, path string) *Entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := m.tables[resource]
	if t == nil {
		return nil
	}
	e, _ := t.entries.Get(path)
	return e
}

// Revision implements Store.
func (m *Memory) Revision() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.rev
}

// Newest is the revision of the last change of a resource, 0 before the first one. A
// watch of it has nothing more to send once it has sent, or passed over, that change.
func (m *Memory) Newest(resource string) int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if t := m.tables[resource]; t != nil {
		return t.newest
	}
	return 0
}

// Count returns the number of objects of each resource that has had any.
func (m *Memory) Count() map[string]int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	counts := map[string]int64{}
	for resource, t := range m.tables {
		counts[resource] = int64(t.entries.Len())
	}
	return counts
}

// List implements Store.
func (m *Memory) List(_ context.Context, sel Selector) ([]*Entry, int64, error) {
	all, rev, err := m.snapshot(sel)
	if err != nil || (sel.Match == nil && sel.Limit == 0) {
		return all, rev, err
	}
	matching := all[:0]
	for _, e := range all {
		if sel.Limit > 0 && len(matching) == sel.Limit {
			break
		}
		if sel.Matches(e) {
			matching = append(matching, e)
		}
	}
	return matching, rev, nil
}

// Update implements Store.
func (m *Memory) Update(ctx context.Context, key Key, change Change) (*Entry, error) {
	kind, ok := m.cfg.Kind(key.Resource)
	if !ok {
		return nil, fmt.Errorf("%v: resource is not served", key)
	}
	enc := m.encoder()
	defer m.free(enc)
	release := func() {}
	defer func() { release() }()
	for place, first := path(key), true; ; first = false {
		w := &write{key: key, path: place, cur: m.current(key.Resource, place), done: make(chan struct{})}
		if err := w.prepare(change, enc); err != nil {
			return nil, err
		}
		if w.next == nil && w.cur == nil {
			return nil, fmt.Errorf("%v: %w", key, ErrNotFound)
		}
		if w.unchanged() {
			return w.cur, nil
		}
		w.volatile = kind.volatile(w.cur.object(), w.next)
		if err := m.submit(ctx, w); !errors.Is(err, errStale) {
			return w.result, err
		}
		if first {
			next, err := m.lost.take(ctx, key)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", key, err)
			}
			release = next
		}
	}
}

func (m *Memory) encoder() *encoder {
	if enc, ok := m.encoders.Get().(*encoder); ok {
		return enc
	}
	return newEncoder()
}

// maxBuffer is the largest buffer of an encoder that is kept for the next one.
const maxBuffer = 64 << 10

func (m *Memory) free(enc *encoder) {
	if enc.buf.Cap() <= maxBuffer {
		m.encoders.Put(enc)
	}
}

// volatile says whether a write need not survive.
func (k Kind) volatile(cur, next Object) bool {
	return k.Durability != nil && k.Durability(cur, next) == Volatile
}

// prepare runs change over w.cur and encodes its result.
func (w *write) prepare(change Change, enc *encoder) error {
	next, err := change(w.cur.object())
	if err != nil || next == nil {
		return err
	}
	w.next = next
	if w.cur != nil && next == w.cur.Object {
		return nil
	}
	if w.plain, err = enc.encode(next); err != nil {
		return fmt.Errorf("%v: encode: %w", w.key, err)
	}
	return nil
}

// unchanged says that the write would store what is there.
func (w *write) unchanged() bool {
	return w.cur != nil && w.next != nil && (w.next == w.cur.Object || samePlain(w.plain, w.cur.JSON))
}

// object is e's object, nil for none.
func (e *Entry) object() Object {
	if e == nil {
		return nil
	}
	return e.Object
}

// submit queues w and waits for its answer, as the writer when nobody else is.
// Once it is queued, ctx no longer counts: the answer is what became of the
// write.
func (m *Memory) submit(ctx context.Context, w *write) error {
	select {
	case m.writes <- w:
	case <-ctx.Done():
		return ctx.Err()
	case <-m.stopped.Done():
		return ErrClosed
	}
	for {
		select {
		case <-w.done:
			return w.err
		case m.turn <- struct{}{}:
			m.lead()
		case <-m.closed:
			select {
			case <-w.done:
				return w.err
			default:
				return ErrClosed // queued too late
			}
		}
	}
}

// lead is what the writer does in its turn, which ends also with a panic.
func (m *Memory) lead() {
	defer func() { <-m.turn }()
	m.process(m.gather())
}

// Mend asks the log whether what it made durable is still there. If it is gone, the
// log gets it again, and mended is true. The error says why nothing can be written.
func (m *Memory) Mend(ctx context.Context) (mended bool, err error) {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	case <-m.stopped.Done():
		return false, ErrClosed
	}
	defer func() { <-m.turn }()
	if m.log == nil {
		return false, nil
	}
	if err = m.log.Check(); errors.Is(err, ErrLost) {
		err = m.rewrite()
		mended = err == nil
	}
	return mended, err
}

// Close implements Store. Writes under way finish; the log learns the exact
// revision and is closed.
func (m *Memory) Close() error {
	m.closing.Do(func() {
		m.stop()
		m.turn <- struct{}{} // and keep it
		m.closeErr = m.closeLog()
		close(m.closed)
	})
	return m.closeErr
}

// Verify checks that nobody modified a shared object: every object still
// encodes to its JSON. For tests.
func (m *Memory) Verify() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var errs []error
	for _, t := range m.tables {
		t.entries.Scan(func(_ string, e *Entry) bool {
			errs = append(errs, e.Verify())
			return true
		})
	}
	return errors.Join(errs...)
}
