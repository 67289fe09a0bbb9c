package custom

import "sync"

const (
	// maxCached bounds what is kept of the objects that webhooks have converted, for all definitions together, in
	// bytes.
	maxCached = 32 << 20
	// metadataSize is what an object takes besides its members: its metadata and the records about it.
	metadataSize = 2 << 10
)

// conversionCache keeps converted objects with the stored ones that they were made of, the latest ones, so that a webhook
// converts an object once for all that read it, and not more than it can answer stays in memory.
type conversionCache struct {
	mu    sync.Mutex // guards what follows
	bytes int
	all   []cachedConversion // oldest first
}

type cachedConversion struct {
	stored *Object
	bytes  int
}

// add remembers that stored is converted to object in the version v.
func (m *conversionCache) add(stored *Object, v *Version, object *Object) {
	size := metadataSize + stored.size() + object.size()
	if size > maxCached/4 {
		return
	}
	stored.cacheConverted(v, object)
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

// size is the length of the members, in bytes.
func (o *Object) size() (n int) {
	for _, m := range o.members {
		n += len(m.name) + len(m.json)
	}
	return n
}
