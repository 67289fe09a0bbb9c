package commandline

import (
	"bytes"
	"slices"
	"sync"
)

// recentBytes is the size of the end of the log that is kept in memory, for bug reports.
const recentBytes = 64 << 10

// Recent keeps the last lines that are written to it.
type Recent struct {
	mu   sync.Mutex // guards data
	data []byte
}

// Write implements io.Writer. It keeps no reference to p.
func (r *Recent) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	p = p[max(len(p)-recentBytes, 0):]
	if over := len(r.data) + len(p) - recentBytes; over > 0 {
		r.data = slices.Delete(r.data, 0, over)
	}
	r.data = append(r.data, p...)
	return n, nil
}

// Sync implements zapcore.WriteSyncer.
func (r *Recent) Sync() error { return nil }

// Bytes returns the last whole lines.
func (r *Recent) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	data := r.data
	if len(data) == recentBytes { // its first line may be cut
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	return slices.Clone(data)
}
