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
	// Kind returns the kind of a resource; false: the resource is not served. Required.
	Kind func(resource string) (Kind, bool)
	// Limits of the history for watches: the number of events of a resource, the approximate memory in bytes of the events
	// of a resource, and of all resources together. 0: 4096 events, 16 MiB, 32 MiB.
	History, HistoryBytes, HistoryTotal int
	// MaxBytes is the maximum length of the JSON of all objects together. Above it no object can be created, and above 110
	// % of it none can grow: Update returns ErrNoSpace. 0: no limit.
	MaxBytes int64
}

// Record is a durable write. If JSON is nil, it removes the key.
type Record struct {
	Key  Key
	Rev  int64
	JSON []byte
	// Deletes means that the record removes an object, or sets its deletionTimestamp. A full log still accepts such
	// records.
	Deletes bool
}

// Log makes the writes of a Memory durable. Memory calls it from one goroutine at a time.
type Log interface {
	// Commit makes all records and the reserved revision durable before it returns, or none of them. It returns ErrNoSpace
	// if there is no room for them, and ErrLost as Check does. Memory uses revisions above reserved only after a later
	// Commit has raised it. Commit does not retain the slice.
	Commit(records []Record, reserved int64) error
	// Check returns ErrLost if committed records are lost and Rewrite can restore them, and another error if nothing can
	// be committed.
	Check() error
	// Rewrite replaces everything that was committed by records and the reserved revision.
	Rewrite(records []Record, reserved int64) error
	Close() error
}

// reserveBlock is how many revisions a commit reserves, so that no revision is used twice: after a crash, the revisions
// of volatile writes, which are not in the log, are unknown.
const reserveBlock = 1 << 20

// Memory is a Store in memory. If it has a Log, it writes every durable change to the Log before the change is visible.
//
// Callers compute and encode the next object on their own goroutines and queue it. The writer is the first caller that
// gets the writer's token. It takes all queued writes, rejects those whose object has changed meanwhile (their callers
// retry), commits the rest together, publishes them in order and answers. No lock is held during the commit.
type Memory struct {
	cfg    Config
	log    Log // nil: nothing is durable
	writes chan *write
	writer chan struct{} // holds one token while a caller is the writer

	stop    context.CancelFunc
	stopped context.Context
	end     end

	// Used only by the writer.
	gathered         int // number of writes in the last batch
	reserved         int64
	quota            quota
	unsaved          map[Key]bool // volatile objects whose newest state is not in the log
	volatileRemovals []Record     // removals of volatile objects, which the log contains only while the process is stopped

	mu           sync.RWMutex // guards the fields below; it is never held during I/O
	rev          int64
	startRev     int64 // rev at the start, where the history of all resources begins
	forgottenRev int64 // highest argument of Forget
	tables       map[string]*table
	historyBytes int // weight of the events of all histories
}

var _ Store = (*Memory)(nil)

// end is the result of Close.
type end struct {
	once sync.Once
	done chan struct{} // closed when the log is closed
	err  error         // set before done is closed
}

// table contains the objects of a resource by "namespace/name" and its last events.
type table struct {
	entries btree.Map[string, *Entry]
	history history
	newest  int64         // revision of the last change; 0: there was none
	wake    chan struct{} // closed and replaced whenever history grows
}

// write is a queued replacement of cur by next at key.
type write struct {
	key       Key
	cur       *Entry
	next      Object // nil: remove
	plain     []byte // next encoded without a resourceVersion
	volatile  bool
	done      chan struct{}
	result    *Entry
	err       error
	published *Event
}

// errStale is the result of a write whose object has changed meanwhile.
var errStale = errors.New("object changed meanwhile")

// NewMemory returns a Memory with the entries. Its revision is rev, or the highest revision of the entries. log may be
// nil. The caller calls Close.
func NewMemory(cfg Config, log Log, entries []*Entry, rev int64) *Memory {
	stopped, stop := context.WithCancel(context.Background())
	m := &Memory{
		cfg: cfg, log: log,
		writes:  make(chan *write, maxBatch),
		writer:  make(chan struct{}, 1),
		stop:    stop,
		stopped: stopped,
		end:     end{done: make(chan struct{})},
		quota:   quota{max: cfg.MaxBytes},
		unsaved: map[Key]bool{},
		rev:     max(rev, 1),
		tables:  map[string]*table{},
	}
	for _, e := range entries {
		m.rev = max(m.rev, e.Rev)
	}
	m.startRev = m.rev
	for _, e := range entries {
		t := m.table(e.Key.Resource)
		t.entries.Set(path(e.Key), e)
		m.quota.used += e.size()
		t.newest = max(t.newest, e.Rev)
		if k, ok := cfg.Kind(e.Key.Resource); ok && k.volatile(nil, e.Object) {
			m.volatileRemovals = append(m.volatileRemovals, Record{Key: e.Key, Deletes: true})
			m.unsaved[e.Key] = true
		}
	}
	return m
}

// path returns the key of an entry in its table, which orders entries by namespace, then name.
func path(k Key) string { return k.Namespace + "/" + k.Name }

// table returns the resource's table. It creates the table on first use. The caller holds m.mu for writing, or has not
// shared m yet.
func (m *Memory) table(resource string) *table {
	t := m.tables[resource]
	if t == nil {
		t = &table{wake: make(chan struct{}), history: newHistory(m.startRev, m.cfg, &m.historyBytes)}
		m.tables[resource] = t
	}
	return t
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, key Key) (*Entry, error) {
	if e := m.current(key); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("%v: %w", key, ErrNotFound)
}

func (m *Memory) current(key Key) *Entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := m.tables[key.Resource]
	if t == nil {
		return nil
	}
	e, _ := t.entries.Get(path(key))
	return e
}

// Revision implements Store.
func (m *Memory) Revision() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.rev
}

// Newest returns the revision of the last change of a resource; 0: there was none. A watch of the resource is up to
// date when it has passed that revision.
func (m *Memory) Newest(resource string) int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if t := m.tables[resource]; t != nil {
		return t.newest
	}
	return 0
}

// Count returns the number of objects of each resource that has, or had, objects.
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
	for {
		w := &write{key: key, cur: m.current(key), done: make(chan struct{})}
		if err := w.prepare(change); err != nil {
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
	}
}

// volatile reports whether a write is Volatile.
func (k Kind) volatile(cur, next Object) bool {
	return k.Durability != nil && k.Durability(cur, next) == Volatile
}

// prepare calls change with the current object and encodes the result.
func (w *write) prepare(change Change) error {
	next, err := change(w.cur.object())
	if err != nil || next == nil {
		return err
	}
	w.next = next
	if w.cur != nil && next == w.cur.Object {
		return nil
	}
	if w.plain, err = Encode(next); err != nil {
		return fmt.Errorf("%v: encode: %w", w.key, err)
	}
	return nil
}

// unchanged reports whether the write would store the current content.
func (w *write) unchanged() bool {
	return w.cur != nil && w.next != nil && (w.next == w.cur.Object || samePlain(w.plain, w.cur.JSON()))
}

// object returns the object of e; nil if e is nil.
func (e *Entry) object() Object {
	if e == nil {
		return nil
	}
	return e.Object
}

// submit queues w and waits for its result; it becomes the writer if there is none. When w is queued, ctx is ignored,
// so that the result is known.
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
		case m.writer <- struct{}{}:
			m.writeBatch()
		case <-m.end.done:
			select {
			case <-w.done:
				return w.err
			default:
				return ErrClosed // queued too late
			}
		}
	}
}

// Repair checks that the log still contains its committed records. If not, it writes them again and returns true. It
// returns an error if nothing can be written.
func (m *Memory) Repair(ctx context.Context) (repaired bool, err error) {
	err = m.Pause(ctx, func() error {
		if m.log == nil {
			return nil
		}
		err := m.log.Check()
		if errors.Is(err, ErrLost) {
			err = m.rewrite()
			repaired = err == nil
		}
		return err
	})
	return repaired, err
}

// Pause calls do while no write is being committed.
func (m *Memory) Pause(ctx context.Context, do func() error) error {
	select {
	case m.writer <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-m.stopped.Done():
		return ErrClosed
	}
	defer func() { <-m.writer }()
	return do()
}

// Close implements Store. It waits for the current batch, records the exact revision in the log, and closes the log.
func (m *Memory) Close() error {
	m.end.once.Do(func() {
		m.stop()
		m.writer <- struct{}{} // which is never returned
		m.end.err = m.closeLog()
		close(m.end.done)
	})
	return m.end.err
}

// Verify is for tests. It checks that no shared object was modified: every object still encodes to its JSON.
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
