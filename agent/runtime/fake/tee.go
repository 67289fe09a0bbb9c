package fake

import (
	"io"
	"sync"
)

// Tee writes to a log and to the attached clients.
type Tee struct {
	log io.WriteCloser

	mu       sync.Mutex // guards attached
	attached map[*Attachment]struct{}
}

// Attachment is an attached client; Gone is closed when a write to it fails.
type Attachment struct {
	to   io.Writer
	Gone chan struct{}
	once sync.Once
}

// NewTee returns a Tee to log without clients.
func NewTee(log io.WriteCloser) *Tee {
	return &Tee{log: log, attached: map[*Attachment]struct{}{}}
}

// Attach adds a client until detach is called; a slow client slows the writer down.
func (t *Tee) Attach(to io.Writer) (a *Attachment, detach func()) {
	a = &Attachment{to: to, Gone: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attached[a] = struct{}{}
	return a, func() { t.detach(a) }
}

func (t *Tee) detach(a *Attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.attached, a)
}

func (t *Tee) readers() (all []*Attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.attached {
		all = append(all, a)
	}
	return all
}

func (t *Tee) Write(p []byte) (int, error) {
	for _, a := range t.readers() {
		if _, err := a.to.Write(p); err != nil {
			t.detach(a)
			a.once.Do(func() { close(a.Gone) })
		}
	}
	return t.log.Write(p)
}

// Close closes the log.
func (t *Tee) Close() error { return t.log.Close() }
