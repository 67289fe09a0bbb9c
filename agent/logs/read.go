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

// Options selects a part of a log.
type Options struct {
	Since      time.Time
	Tail       int64 // lines; negative: all
	Limit      int64 // bytes; negative: all
	Timestamps bool
	Stream     string // stdout, stderr; empty: both
	// Done makes Read follow the log, until the channel is closed because the container is dead, and the rest is read;
	// nil: Read does not follow.
	Done <-chan struct{}
}

// OptionsOf converts the API's options. done becomes Done if the options request to follow the log.
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

// Read writes the log at path to w: the current file and, after a rotation, the previous one, which is not compressed
// yet. If the log is rotated meanwhile, Read continues with the new file.
func Read(ctx context.Context, path string, o Options, w io.Writer) error {
	f, err := openTail(path, o.Tail)
	if err != nil {
		return err
	}
	r := &reader{path: path, now: newSource(f), out: &printer{w: w, o: o, left: o.Limit, fresh: true}}
	defer r.close()
	if o.Done == nil {
		return end(r.rest())
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
		if err := r.rest(); err != nil {
			return end(err)
		}
		dead, err := wait(ctx, watch, path, o.Done)
		if err != nil || dead {
			return errors.Join(err, end(r.rest()))
		}
	}
}

// reader is the position of a reader in the files of a log.
type reader struct {
	path string
	// now is the current file and last the one before it; nil at first. Both are read: containerd has a writer for each
	// stream, and one of them may still write to the old file while the other writes to the new one.
	last, now *source
	out       *printer
}

// source is a file of a log.
type source struct {
	f    *os.File
	in   *bufio.Reader
	part []byte
}

func newSource(f *os.File) *source { return &source{f: f, in: bufio.NewReader(f)} }

// rest prints everything up to the end of the newest file.
func (r *reader) rest() error {
	for {
		if err := r.drain(); err != nil {
			return err
		}
		next, err := successor(r.path, r.now.f)
		if err != nil || next == nil {
			return err
		}
		err = r.drain() // the records that were written before the writer switched files
		if r.last != nil {
			r.last.f.Close()
		}
		r.last, r.now = r.now, newSource(next)
		if err != nil {
			return err
		}
	}
}

func (r *reader) drain() error {
	if r.last != nil {
		if err := r.out.drain(r.last.in, &r.last.part); err != nil {
			return err
		}
	}
	return r.out.drain(r.now.in, &r.now.part)
}

func (r *reader) close() {
	r.now.f.Close()
	if r.last != nil {
		r.last.f.Close()
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

// wait returns when there may be more to read, or the container is dead.
func wait(ctx context.Context, watch *fsnotify.Watcher, path string, done <-chan struct{}) (dead bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-done:
			return true, nil
		case err := <-watch.Errors:
			return false, err
		case ev := <-watch.Events:
			if isPlain(path, ev.Name) && (ev.Has(fsnotify.Write) || ev.Has(fsnotify.Create)) {
				return false, nil
			}
		}
	}
}

// printer writes records as the API shows them.
type printer struct {
	w     io.Writer
	o     Options
	left  int64 // bytes; negative: no limit
	fresh bool  // at the start of a line
}

// drain prints every complete record of in. It keeps the start of an incomplete record in part.
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
		return nil // incomplete, for example after a power failure
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
