package fake

import (
	"io"
	"sync"
)

// tee writes to a log and to whoever is attached.
type tee struct {
	log io.WriteCloser

	mu       sync.Mutex // guards attached
	attached map[*attachment]struct{}
}

// attachment is one reader; gone is closed when it can be written to no more.
type attachment struct {
	to   io.Writer
	gone chan struct{}
	once sync.Once
}

func newTee(log io.WriteCloser) *tee {
	return &tee{log: log, attached: map[*attachment]struct{}{}}
}

// attach adds a reader until detach is called; a slow one slows the writer down.
func (t *tee) attach(to io.Writer) (a *attachment, detach func()) {
	a = &attachment{to: to, gone: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attached[a] = struct{}{}
	return a, func() { t.detach(a) }
}

func (t *tee) detach(a *attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.attached, a)
}

func (t *tee) readers() (all []*attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.attached {
		all = append(all, a)
	}
	return all
}

func (t *tee) Write(p []byte) (int, error) {
	for _, a := range t.readers() {
		if _, err := a.to.Write(p); err != nil {
			t.detach(a)
			a.once.Do(func() { close(a.gone) })
		}
	}
	return t.log.Write(p)
}

func (t *tee) close() error { return t.log.Close() }
