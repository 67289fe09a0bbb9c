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

// ErrDamaged means that frames are missing.
var ErrDamaged = errors.New("the log of the newest writes is damaged")

// Content is the result of Read.
type Content struct {
	Records  []store.Record // the newest record of each key
	Reserved int64          // newest reserved revision; 0: there was no frame
	Next     Place          // after the last frame
}

// Expected is the content of the log according to the state file. Frames are read from its Place.
type Expected struct {
	Place
	File uint64 // see Generation; 0: the log has version 1
	Base uint64 // newest transaction of the state file
	Size int64  // minimum size of the log in bytes
	All  bool   // there may be frames whose records are not in the state file
	Open bool   // the generation has begun at Place, so its first frame must exist
}

// Read reads the expected frames. It also reads generations that continue them and began with a later transaction than
// the newest one of the state file: the disk may have lost that transaction.
//
// It returns ErrDamaged if frames are missing: if there is a later frame than the first missing one, or a frame that
// continues a newer state file. If All is true, it also returns ErrDamaged if the file is missing or shorter than
// expected. It returns the frames before the damage, too. Another error means that the file cannot be read now.
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

// open opens the file. It returns ErrDamaged only if there is no such file.
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

// reader reads frames. Its position in the file is Next.
type reader struct {
	Content
	file   *os.File
	size   int64
	want   Expected
	base   uint64
	err    error             // of a failed read
	newest map[store.Key]int // index into Records
}

// frame is a frame with a valid checksum.
type frame struct {
	Generation
	number   uint64
	reserved int64
	body     []byte
	end      int64
}

// next returns the next frame, which is at the beginning of the file if there was no room at the end; nil: there is
// none. The first frame of the next generation counts only if the current generation has no more frames: the checkpoint
// may have failed after that frame was written.
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

// continued reports whether the frame belongs to a generation that continues the current one.
func (r *reader) continued(f *frame) bool {
	return r.Next.Generation != 0 && f.Before == r.Next.Generation && f.Base > r.base
}

// newer reports whether the frame contains writes after a newer version of the state file.
func (r *reader) newer(f *frame) bool {
	return r.want.File != 0 && f.File == r.want.File && f.Base > r.base && f.number > 0
}

// addRecords adds the records of the frame.
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

// checkRest looks for frames that prove that earlier ones are missing, and checks the size of the file.
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
			return fmt.Errorf("%w: frame %d of generation %x is missing, but a later one exists", ErrDamaged,
				r.Next.Number, r.Next.Generation)
		}
	}
	switch {
	case !r.want.All:
		return nil
	case r.err != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, r.err)
	case r.size < max(r.want.Size, sizeStep):
		return fmt.Errorf("%w: it was truncated to %d bytes", ErrDamaged, r.size)
	case r.want.Open && r.Next == r.want.Place:
		return fmt.Errorf("%w: the frames that the state file says it has are missing; it is another file, or an older one",
			ErrDamaged)
	}
	return nil
}

// read fills b from the file at an offset. It returns false if the file is too short or cannot be read.
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

// frame returns the frame at an offset; nil: there is no complete frame.
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
