package protobuf

import (
	"slices"
	"sync"
	"time"
	"weak"

	"monopod/store"
)

// Shelf keeps the messages of entries for a minute: clients read what they have read before, and to encode an
// object takes several times as long as to send it. An entry's JSON is kept with it as long as it is stored, but most
// clients do not ask for protobuf.
type Shelf struct {
	// Most is how many bytes of messages are kept at most; 0: none.
	Most int

	mu      sync.Mutex
	entries []weak.Pointer[store.Entry] // whose messages are kept; some are gone with their message
	bytes   int                         // of all these messages
	refused int                         // messages since it was last full
}

// keptFor is how long messages are kept.
const keptFor = time.Minute

// keep keeps the message of an entry, if there is room.
func (s *Shelf) keep(e *store.Entry, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+len(message) > s.Most && !s.makeRoom(len(message)) {
		return
	}
	if !e.Another.CompareAndSwap(nil, &message) {
		return
	}
	s.entries, s.bytes = append(s.entries, weak.Make(e)), s.bytes+len(message)
	if len(s.entries) == 1 {
		time.AfterFunc(keptFor, s.clear)
	}
}

// makeRoom forgets entries that are gone. It looks for them once for as many messages as there are entries.
func (s *Shelf) makeRoom(size int) bool {
	if s.refused++; s.refused < len(s.entries) {
		return false
	}
	s.refused, s.bytes = 0, 0
	s.entries = slices.DeleteFunc(s.entries, func(p weak.Pointer[store.Entry]) bool {
		e := p.Value()
		if e != nil {
			s.bytes += len(*e.Another.Load())
		}
		return e == nil
	})
	return s.bytes+size <= s.Most
}

// clear drops all messages.
func (s *Shelf) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.entries {
		if e := p.Value(); e != nil {
			e.Another.Store(nil)
		}
	}
	s.entries, s.bytes, s.refused = nil, 0, 0
}

// message returns the message of an entry, if it is kept.
func message(e *store.Entry) ([]byte, bool) {
	if kept := e.Another.Load(); kept != nil {
		return *kept, true
	}
	return nil, false
}
