package custom

import "sync"

const (
	// maxRemembered bounds what is kept of the objects that webhooks have converted, for all definitions together, in
	// bytes.
	maxRemembered = 32 << 20
	// besides is what an object takes besides its members: its metadata and the records about it.
	besides = 2 << 10
)

// memory keeps converted objects with the stored ones that they were made of, the latest ones, so that a webhook
// converts an object once for all that read it, and not more than it can answer stays in memory.
type memory struct {
	mu    sync.Mutex // guards what follows
	bytes int
	all   []remembered // oldest first
}

type remembered struct {
	stored *Object
	bytes  int
}

// keep remembers that stored is converted to object in the version v.
func (m *memory) keep(stored *Object, v *Version, object *Object) {
	size := besides + stored.size() + object.size()
	if size > maxRemembered/4 {
		return
	}
	stored.remember(v, object)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all, m.bytes = append(m.all, remembered{stored, size}), m.bytes+size
	for m.bytes > maxRemembered {
		m.all[0].stored.converted.Store(nil)
		m.bytes -= m.all[0].bytes
		m.all[0] = remembered{}
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
