package commandline

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"monopod/apiserver/kit/guard"
)

// Progress shows how far a long step is, in one line that it rewrites. It shows nothing unless it is on a terminal.
// It counts what is written to it.
type Progress struct {
	out  io.Writer // nil: shows nothing
	size func(int64) string

	mu   sync.Mutex // guards the fields below
	what string
	most int64 // the whole, in bytes; 0: not known
	done int64
	last int // length of the line
	stop chan struct{}
	over <-chan error
}

// redraw is the interval of drawing.
const redraw = 100 * time.Millisecond

// NewProgress begins to show progress on out, which is usually the standard error of a command. what says what goes on,
// most is the whole in bytes; 0 or less: not known. size puts bytes into words; nil:
// nothing is counted. End must follow.
func NewProgress(out io.Writer, what string, most int64, size func(int64) string) *Progress {
	f, ok := out.(*os.File)
	if !ok || !isTerminal(f) {
		out = nil
	}
	return newProgress(out, what, most, size)
}

func newProgress(out io.Writer, what string, most int64, size func(int64) string) *Progress {
	p := &Progress{out: out, what: what, most: max(most, 0), size: size, stop: make(chan struct{})}
	if out != nil {
		began := time.Now()
		p.over = guard.Spawn(func() error { p.run(began); return nil })
	}
	return p
}

// Write counts p as done.
func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(len(b))
	return len(b), nil
}

// Set sets how far the step is, and the whole, in bytes.
func (p *Progress) Set(done, most int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.most = done, max(most, 0)
}

// Call sets what goes on.
func (p *Progress) Call(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = what
}

// Shown reports whether anybody sees it.
func (p *Progress) Shown() bool { return p.out != nil }

// run draws until End.
func (p *Progress) run(began time.Time) {
	ticks := time.NewTicker(redraw)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			p.draw(time.Since(began))
		case <-p.stop:
			p.clear()
			return
		}
	}
}

// draw rewrites the line.
func (p *Progress) draw(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := bar(p.what, p.done, p.most, p.size, took)
	fmt.Fprintf(p.out, "\r%s%s", line, strings.Repeat(" ", max(p.last-len(line), 0)))
	p.last = len(line)
}

// clear removes the line.
func (p *Progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last > 0 {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.last))
	}
}

// End removes the line: what the command says afterwards begins at its place.
func (p *Progress) End() {
	if p.out == nil {
		return
	}
	close(p.stop)
	<-p.over //nolint:errcheck // a panic, which the guard has reported
	p.out = nil
}

// barWidth is the length of a whole bar.
const barWidth = 24

// bar is the line at one moment. Only ASCII: consoles of small boxes have no other characters.
func bar(what string, done, most int64, size func(int64) string, took time.Duration) string {
	seconds := fmt.Sprintf("%d s", int(took.Seconds()))
	switch {
	case most > 0 && done >= most: // what was sent is being worked on
		return fmt.Sprintf("%s [%s] %s, finishing, %s", what, strings.Repeat("#", barWidth), size(done), seconds)
	case most > 0:
		full := int(done * barWidth / most)
		return fmt.Sprintf("%s [%s%s] %d %%, %s of %s, %s", what, strings.Repeat("#", full),
			strings.Repeat("-", barWidth-full), done*100/most, size(done), size(most), seconds)
	case done > 0:
		return fmt.Sprintf("%s %s, %s", what, size(done), seconds)
	}
	return fmt.Sprintf("%s %s", what, seconds)
}
