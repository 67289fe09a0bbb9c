package fake

import (
	"bytes"
	"io"
	"os"
	"sync"

	"k8s.io/utils/clock"
)

// maxLogLine is the length at which containerd cuts a line into partial ones
// (its max_container_log_line_size).
const maxLogLine = 16 << 10

// Log is a container's log in CRI's format, with lines "TIME STREAM TAG TEXT": TIME in
// RFC3339Nano, TAG P for a partial line and F for its end. The Log of a container without a
// log path discards everything.
type Log struct {
	path  string
	clock clock.Clock

	mu   sync.Mutex // guards file; it is held during writes, so that lines are not mixed
	file *os.File
}

// openLog opens the log at path; an empty path discards everything.
func openLog(path string, clock clock.Clock) (*Log, error) {
	l := &Log{path: path, clock: clock}
	return l, l.Reopen()
}

// Reopen continues in a new file at the path, after the old one was renamed.
func (l *Log) Reopen() error {
	if l.path == "" {
		return nil
	}
	l.mu.Lock() // so that nothing is written to the old file once the new one exists
	defer l.mu.Unlock()
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	old := l.file
	if l.file = file; old != nil {
		return old.Close()
	}
	return nil
}

// Close closes the file; later writes are discarded.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

func (l *Log) line(stream, tag string, text []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	line := append(l.clock.Now().AppendFormat(nil, timeFormat), ' ')
	line = append(append(append(append(line, stream...), ' '), tag...), ' ')
	_, err := l.file.Write(append(append(line, text...), '\n'))
	return err
}

// timeFormat is RFC3339Nano with all of its digits, as containerd writes it, so
// that log lines sort.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// Stream returns a writer of stdout or stderr lines. Close writes the rest of a line
// without an end.
func (l *Log) Stream(name string) io.WriteCloser { return &lines{log: l, stream: name} }

type lines struct {
	log    *Log
	stream string

	mu   sync.Mutex // guards rest
	rest []byte
}

func (w *lines) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		text, rest, ended := bytes.Cut(w.rest, []byte{'\n'})
		tag := "F"
		if len(text) > maxLogLine {
			text, rest, tag = w.rest[:maxLogLine], w.rest[maxLogLine:], "P"
		} else if !ended {
			return len(p), nil
		}
		if err := w.log.line(w.stream, tag, text); err != nil {
			return 0, err
		}
		w.rest = rest
	}
}

func (w *lines) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) == 0 {
		return nil
	}
	return w.log.line(w.stream, "P", w.rest)
}
