package custom

import "sync"

const (
	// maxCached is the maximum size of all cached conversions, in bytes.
	maxCached = 32 << 20
	// metadataSize is the memory of an object besides its members, in bytes.
	metadataSize = 2 << 10
)

// conversionCache keeps the latest conversions with their stored objects, so that readers of an object share one
// conversion. The size limit holds for all definitions together.
type conversionCache struct {
	mu    sync.Mutex // guards the fields below
	bytes int
	all   []cachedConversion // oldest first
}

type cachedConversion struct {
	stored *Object
	bytes  int
}

// add caches the conversion of stored to object in the version v.
func (m *conversionCache) add(stored *Object, v *Version, object *Object) {
	size := metadataSize + stored.size() + object.size()
	if size > maxCached/4 {
		return
	}
	out := &converted{version: v, object: object}
	for c := stored.converted.Load(); c != nil; c = c.next { // without conversions by earlier states of the definition
		if c.version.def == v.def && c.version != v {
			out.next = &converted{c.version, c.object, out.next}
		}
	}
	stored.converted.Store(out)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all, m.bytes = append(m.all, cachedConversion{stored, size}), m.bytes+size
	for m.bytes > maxCached {
		m.all[0].stored.converted.Store(nil)
		m.bytes -= m.all[0].bytes
		m.all[0] = cachedConversion{}
		m.all = m.all[1:]
	}
}

// size returns the length of the members in bytes.
func (o *Object) size() (n int) {
	for _, m := range o.members {
		n += len(m.name) + len(m.json)
	}
	return n
}
