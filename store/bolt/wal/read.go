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

// Expected is what the state file says of its log. Frames are read from its Place on.
type Expected struct {
	Place
	File uint64 // of the state file; 0: its log has version 1
	Base uint64 // its newest transaction
	Size int64  // the least size of the log in bytes
	All  bool   // there may be frames that the state file does not have
	Open bool   // the generation has begun at Place: its first frame is there
}

// Read reads the expected frames, and those of generations that continue them and that began with a later transaction
// of the state file than its newest one: it may have lost that. It fails with ErrDamaged if frames are missing: if one
// is there that is later than the first one that is not, or that continues a newer state file, and if All is true, also
// if the file is missing or shorter than expected. What comes before is returned, too. Another error means that the
// file cannot be read now.
func Read(path string, want Expected) (Content, error) {
	r := &reader{Content: Content{Next: want.Place}, want: want, base: want.Base, newest: map[store.Key]int{}}
	err := r.open(path)
	if err != nil {
		if !want.All {
			err = nil
		}
		return r.Content, err
	}
	defer r.file.Close()
	for f := r.next(); f != nil && err == nil; f = r.next() {
		err = r.addRecords(f)
	}
	if err == nil {
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
	want   Expected
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

// next returns the next frame, which may be at the beginning if it had no room at the end; nil if it is not there. The
// first frame of another generation counts only if the present one has no more: a checkpoint may have failed after it.
func (r *reader) next() *frame {
	here, wrapped := r.frame(r.Next.At), r.frame(0)
	for _, follows := range []func(*frame) bool{r.sameGeneration, r.nextGeneration} {
		for _, f := range []*frame{here, wrapped} {
			if f != nil && follows(f) {
				return f
			}
		}
	}
	return nil
}

func (r *reader) sameGeneration(f *frame) bool {
	return f.ID == r.Next.Generation && f.number == r.Next.Number
}

func (r *reader) nextGeneration(f *frame) bool {
	return r.continued(f) && f.After == r.Next.Number && f.number == 0
}

// continued reports whether the frame is of a generation that continues the one that is read.
func (r *reader) continued(f *frame) bool {
	return r.Next.Generation != 0 && f.Before == r.Next.Generation && f.Base > r.base
}

// newer reports whether the frame has writes to a state file that is newer than the one that is read.
func (r *reader) newer(f *frame) bool {
	return r.want.File != 0 && f.File == r.want.File && f.Base > r.base && f.number > 0
}

// addRecords adds the frame's records.
func (r *reader) addRecords(f *frame) error {
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

// checkRest looks for what must not be there behind the last frame, and for what must have been before it.
func (r *reader) checkRest() error {
	for at := int64(0); at < r.size && r.err == nil; at += Block {
		f := r.frame(at)
		switch {
		case f == nil:
		case r.newer(f):
			return fmt.Errorf(
				"%w: the state file is older than its log, which continues transaction %d; the newest of the state file is %d",
				ErrDamaged, f.Base, r.base)
		case r.want.All && (f.ID == r.Next.Generation && f.number > r.Next.Number || r.continued(f)):
			return fmt.Errorf("%w: frame %d of generation %x is missing, and a later one is there", ErrDamaged, r.Next.Number,
				r.Next.Generation)
		}
	}
	switch {
	case !r.want.All:
		return nil
	case r.err != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, r.err)
	case r.size < max(r.want.Size, sizeStep):
		return fmt.Errorf("%w: it was cut off at %d bytes", ErrDamaged, r.size)
	case r.want.Open && r.Next == r.want.Place:
		return fmt.Errorf("%w: the frames that the state file says it has are missing; it is another file, or an older one",
			ErrDamaged)
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
	head, size := make([]byte, headSize), int64(headSize)
	if !r.read(head, at) {
		return nil
	}
	f, fields := &frame{}, head[len(magic):]
	switch string(head[:len(magic)]) {
	case magic:
		f.File, fields = order.Uint64(fields), fields[fileSize:]
	case magic1:
		size -= fileSize
	default:
		return nil
	}
	f.ID, f.Before, f.After = order.Uint64(fields), order.Uint64(fields[8:]), order.Uint64(fields[16:])
	f.Base, f.number, f.reserved = order.Uint64(fields[24:]), order.Uint64(fields[32:]), int64(order.Uint64(fields[40:]))
	start := size
	if size += int64(order.Uint32(fields[48:])); size > r.size-at {
		return nil
	}
	data := make([]byte, size)
	if !r.read(data, at) || order.Uint32(fields[52:]) != sum(data, int(start)) {
		return nil
	}
	f.body, f.end = data[start:], at+(size+Block-1)/Block*Block
	return f
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
