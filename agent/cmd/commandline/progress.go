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

// Progress shows the progress of a long step, in one line that it rewrites. Outside of a terminal it shows nothing. As
// an io.Writer, it counts bytes.
type Progress struct {
	out  io.Writer // nil: shows nothing
	size func(int64) string

	mu      sync.Mutex // guards the fields below
	title   string
	total   int64 // in bytes; 0: not known
	done    int64
	lineLen int // length of the line on the terminal
	stop    chan struct{}
	over    <-chan error
}

// redraw is the interval of drawing.
const redraw = 100 * time.Millisecond

// NewProgress begins to show progress on out, which is usually the standard error of a command. total is in bytes; 0 or
// less: not known. size formats bytes; nil if nothing is counted. End must follow.
func NewProgress(out io.Writer, title string, total int64, size func(int64) string) *Progress {
	f, ok := out.(*os.File)
	if !ok || !isTerminal(f) {
		out = nil
	}
	return newProgress(out, title, total, size)
}

func newProgress(out io.Writer, title string, total int64, size func(int64) string) *Progress {
	p := &Progress{out: out, title: title, total: max(total, 0), size: size, stop: make(chan struct{})}
	if out != nil {
		began := time.Now()
		p.over = guard.Spawn(func() error { p.run(began); return nil })
	}
	return p
}

// Write implements io.Writer: it counts the bytes as done.
func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(len(b))
	return len(b), nil
}

// Set sets the done bytes and the total.
func (p *Progress) Set(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total = done, max(total, 0)
}

// SetTitle replaces the title.
func (p *Progress) SetTitle(title string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.title = title
}

// Shown reports whether the progress is on a terminal.
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
	line := bar(p.title, p.done, p.total, p.size, took)
	fmt.Fprintf(p.out, "\r%s%s", line, strings.Repeat(" ", max(p.lineLen-len(line), 0)))
	p.lineLen = len(line)
}

// clear removes the line.
func (p *Progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lineLen > 0 {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.lineLen))
	}
}

// End removes the line, so that later output replaces it.
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

// bar returns the line. It is ASCII, because consoles of small boxes have no other characters.
func bar(title string, done, total int64, size func(int64) string, took time.Duration) string {
	seconds := fmt.Sprintf("%d s", int(took.Seconds()))
	switch {
	case total > 0 && done >= total: // the other side processes the data
		return fmt.Sprintf("%s [%s] %s, finishing, %s", title, strings.Repeat("#", barWidth), size(done), seconds)
	case total > 0:
		full := int(done * barWidth / total)
		return fmt.Sprintf("%s [%s%s] %d %%, %s of %s, %s", title, strings.Repeat("#", full),
			strings.Repeat("-", barWidth-full), done*100/total, size(done), size(total), seconds)
	case done > 0:
		return fmt.Sprintf("%s %s, %s", title, size(done), seconds)
	}
	return fmt.Sprintf("%s %s", title, seconds)
}
