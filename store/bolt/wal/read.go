package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"monopod/store"
)

// ErrDamaged means that frames are missing that had been written.
var ErrDamaged = errors.New("the log of the newest writes is damaged")

// Content is what Read found.
type Content struct {
	Records  []store.Record // the newest of each key
	Reserved int64          // the newest reserved revision; 0: there was no frame
	Next     Place          // behind the last frame
}

// Read reads the frames from a place on, and those of generations that continue it and that began with a later
// transaction of the state file than base, its newest one: the file may have lost that. If all is true, it reads the
// whole file, and fails with ErrDamaged if that is missing or was cut off, or if frames after the first one that is
// missing are there: what comes before is returned, too. Another error means that the file cannot be read now.
func Read(path string, from Place, base uint64, all bool) (Content, error) {
	r := &reader{Content: Content{Next: from}, base: base, newest: map[store.Key]int{}}
	err := r.open(path)
	if err != nil {
		if !all {
			err = nil
		}
		return r.Content, err
	}
	defer r.file.Close()
	for f := r.next(); f != nil && err == nil; f = r.next() {
		err = r.take(f)
	}
	if all && err == nil {
		err = r.checkRest()
	}
	return r.Content, err
}

// open opens the file. It fails with ErrDamaged only if there is no such file.
func (r *reader) open(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return err
	}
	is, err := f.Stat()
	if err == nil && !is.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is not a regular file", ErrDamaged, path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r.file, r.size = f, is.Size()
	return nil
}

// reader is at the place Next in the file.
type reader struct {
	Content
	file   *os.File
	size   int64
	base   uint64
	err    error             // of a read that failed
	newest map[store.Key]int // into Records
}

// frame is a frame whose checksum is right.
type frame struct {
	Generation
	number   uint64
	reserved int64
	body     []byte
	end      int64
}

// next returns the next frame, which may be at the beginning if it had no room at the end; nil if it is not there.
func (r *reader) next() *frame {
	for _, at := range []int64{r.Next.At, 0} {
		if f := r.frame(at); f != nil && r.follows(f) {
			return f
		}
	}
	return nil
}

// follows reports whether the frame is the next one: of the generation, or the first of one that continues it.
func (r *reader) follows(f *frame) bool {
	if f.ID == r.Next.Generation {
		return f.number == r.Next.Number
	}
	return r.continued(f) && f.After == r.Next.Number && f.number == 0
}

// continued reports whether the frame is of a generation that continues the one that is read.
func (r *reader) continued(f *frame) bool {
	return r.Next.Generation != 0 && f.Before == r.Next.Generation && f.Base > r.base
}

// take adds the frame's records.
func (r *reader) take(f *frame) error {
	for body := f.body; len(body) > 0; {
		record, rest, ok := parseRecord(body)
		if !ok {
			return fmt.Errorf("%w: frame %d has another layout than expected", ErrDamaged, f.number)
		}
		body = rest
		if i, ok := r.newest[record.Key]; ok {
			r.Records[i] = record
			continue
		}
		r.newest[record.Key] = len(r.Records)
		r.Records = append(r.Records, record)
	}
	r.Next = Place{Generation: f.ID, Number: f.number + 1, At: f.end}
	r.base, r.Reserved = f.Base, f.reserved
	return nil
}

// checkRest looks for frames after the next one, which is missing.
func (r *reader) checkRest() error {
	for at := int64(0); at < r.size && r.err == nil; at += Block {
		f := r.frame(at)
		if f != nil && (f.ID == r.Next.Generation && f.number > r.Next.Number || r.continued(f)) {
			return fmt.Errorf("%w: frame %d of generation %x is missing, and a later one is there", ErrDamaged, r.Next.Number, r.Next.Generation)
		}
	}
	if r.err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, r.err)
	}
	if r.size < growth {
		return fmt.Errorf("%w: it was cut off at %d bytes", ErrDamaged, r.size)
	}
	return nil
}

// read fills b with what is at a place; false if that is not there, or cannot be read.
func (r *reader) read(b []byte, at int64) bool {
	if at < 0 || at+int64(len(b)) > r.size {
		return false
	}
	_, err := r.file.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return err == nil
}

// frame returns the frame at a place, nil if there is none, or a part of one.
func (r *reader) frame(at int64) *frame {
	var head [headSize]byte
	if !r.read(head[:], at) || string(head[:len(magic)]) != magic {
		return nil
	}
	size := int64(headSize) + int64(order.Uint32(head[56:]))
	if size > r.size-at {
		return nil
	}
	data := make([]byte, size)
	if !r.read(data, at) || order.Uint32(data[sumAt:]) != sum(data) {
		return nil
	}
	return &frame{
		Generation: Generation{
			ID: order.Uint64(data[8:]), Before: order.Uint64(data[16:]), After: order.Uint64(data[24:]), Base: order.Uint64(data[32:]),
		},
		number:   order.Uint64(data[40:]),
		reserved: int64(order.Uint64(data[48:])),
		body:     data[headSize:],
		end:      at + (size+Block-1)/Block*Block,
	}
}

// parseRecord is the inverse of appendRecord. The record's JSON is part of b.
func parseRecord(b []byte) (r store.Record, rest []byte, ok bool) {
	if len(b) < 2 || len(b)-2 < int(order.Uint16(b)) {
		return r, nil, false
	}
	end := 2 + int(order.Uint16(b))
	if r.Key, ok = store.ParsePath(string(b[2:end])); !ok {
		return r, nil, false
	}
	b = b[end:]
	rev, n := binary.Uvarint(b)
	if n <= 0 {
		return r, nil, false
	}
	length, m := binary.Uvarint(b[n:])
	if m <= 0 {
		return r, nil, false
	}
	r.Rev, b = int64(rev), b[n+m:]
	if length == 0 {
		return r, b, true
	}
	if length--; length > uint64(len(b)) {
		return r, nil, false
	}
	r.JSON = b[:length:length]
	return r, b[length:], true
}
