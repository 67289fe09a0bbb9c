package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
)

// Options is what of a log is wanted.
type Options struct {
	Since      time.Time
	Tail       int64 // lines; below 0 all
	Limit      int64 // bytes; below 0 all
	Timestamps bool
	Stream     string // stdout, stderr; empty: both
	// Done, when not nil, asks to follow: it closes when the container is dead,
	// after which the rest is read and the log ends.
	Done <-chan struct{}
}

// OptionsOf reads the API's options; done is used when they say follow.
func OptionsOf(o *corev1.PodLogOptions, now time.Time, done <-chan struct{}) Options {
	out := Options{Tail: -1, Limit: -1, Timestamps: o.Timestamps}
	if o.TailLines != nil {
		out.Tail = *o.TailLines
	}
	if o.LimitBytes != nil {
		out.Limit = *o.LimitBytes
	}
	switch {
	case o.SinceSeconds != nil:
		out.Since = now.Add(-time.Duration(*o.SinceSeconds) * time.Second)
	case o.SinceTime != nil:
		out.Since = o.SinceTime.Time
	}
	if o.Stream != nil && *o.Stream != corev1.LogStreamAll {
		out.Stream = map[string]string{corev1.LogStreamStdout: "stdout", corev1.LogStreamStderr: "stderr"}[*o.Stream]
	}
	if o.Follow {
		out.Done = done
	}
	return out
}

// Read writes the log at path to w. A log that is rotated while it is followed
// goes on with its new file.
func Read(ctx context.Context, path string, o Options, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { f.Close() }()
	if err := seekTail(f, o.Tail); err != nil {
		return err
	}
	out := &printer{w: w, o: o, left: o.Limit, fresh: true}
	in := bufio.NewReader(f)
	var part []byte
	drain := func() error { return out.drain(in, &part) }
	if o.Done == nil {
		return end(drain())
	}
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watch.Close()
	if err := watch.Add(filepath.Dir(path)); err != nil {
		return err
	}
	for {
		if err := drain(); err != nil {
			return end(err)
		}
		next, err := wait(ctx, watch, path, f, o.Done)
		if err != nil || next == nil {
			return errors.Join(err, end(drain()))
		}
		if next != f {
			if err := drain(); err != nil {
				return end(err)
			}
			f.Close()
			f, in, part = next, bufio.NewReader(next), nil
		}
	}
}

// errLimit ends a log whose limit is reached.
var errLimit = errors.New("limit reached")

func end(err error) error {
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// wait returns when there may be more: f itself, or the file that took its
// place; nil when the container is dead.
func wait(ctx context.Context, watch *fsnotify.Watcher, path string, f *os.File, done <-chan struct{}) (*os.File, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-done:
			return nil, nil
		case err := <-watch.Errors:
			return nil, err
		case ev := <-watch.Events:
			switch {
			case ev.Name != path:
			case ev.Has(fsnotify.Write):
				return f, nil
			case ev.Has(fsnotify.Create):
				return os.Open(path)
			}
		}
	}
}

// printer writes records as the API shows them.
type printer struct {
	w     io.Writer
	o     Options
	left  int64 // bytes, below 0 no limit
	fresh bool  // at the start of a line
}

// drain copies every whole record of in; the start of one not yet whole is kept
// in part.
func (p *printer) drain(in *bufio.Reader, part *[]byte) error {
	for {
		chunk, err := in.ReadSlice('\n')
		*part = append(*part, chunk...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		err = p.print(bytes.TrimSuffix(*part, []byte("\n")))
		*part = (*part)[:0]
		if err != nil {
			return err
		}
	}
}

func (p *printer) print(record []byte) error {
	line, err := Parse(record)
	if err != nil {
		return nil // a torn record, as after a power cut
	}
	if line.At.Before(p.o.Since) || p.o.Stream != "" && line.Stream != p.o.Stream {
		return nil
	}
	var b []byte
	if p.o.Timestamps && p.fresh {
		b = append(append(b, line.Stamp...), ' ')
	}
	b = append(b, line.Text...)
	if p.fresh = !line.Partial; p.fresh {
		b = append(b, '\n')
	}
	return p.write(b)
}

func (p *printer) write(b []byte) error {
	limited := p.left >= 0 && int64(len(b)) >= p.left
	if limited {
		b = b[:p.left]
	}
	if _, err := p.w.Write(b); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	if limited {
		return errLimit
	}
	if p.left >= 0 {
		p.left -= int64(len(b))
	}
	return nil
}
