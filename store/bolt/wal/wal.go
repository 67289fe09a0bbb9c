// Package wal is the write-ahead log of the writes that the state file does not contain yet. A commit needs one write
// and one fdatasync; a transaction of bbolt writes five pages and needs two. Three nouns:
//
//   - Frame: the records of a commit with a checksum. Frames do not share blocks.
//   - Generation: the frames between two checkpoints, numbered from zero. A checkpoint writes all records to the state
//     file, which then names the generation that begins (bolt.WAL).
//   - Log: the open file, a ring of frames. A generation uses at most half of it, so that the previous generation
//     exists as long as the disk might lose the last transaction of the state file.
//
// Read returns the records of a generation and of its successors. Generations have random IDs, and their frames
// contain the ID of the previous generation, so remains of older generations, or of another file, are never taken for
// newer writes.
//
// The state file and the log refer to each other, so that the loss, truncation or replacement of one of them is
// detected. The first frame of a generation has no records and is durable before the state file names the generation.
// The log grows only with a new generation, and the state file contains its size. Each frame contains the ID of the
// state file and the number of its transaction. Only the loss of frames at the end of the newest generation cannot be
// detected.
package wal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"golang.org/x/sys/unix"

	"monopod/store"
)

// Block is the unit of frames in bytes. Frames do not share blocks, so that a torn write cannot damage earlier frames.
const Block = 4096

// The head of a frame:
//
//	0 magic, 8 state file, 16 generation, 24 the one before, 32 the number of its frames, 40 base, 48 number,
//	56 reserved revision, 64 length of the body, 68 CRC-32 (Castagnoli) of what is before it and of the body
//
// Frames of version 1, which are only read, have no state file: everything behind it is 8 bytes earlier.
const (
	magic    = "monowal2"
	magic1   = "monowal1"
	headSize = 72
	fileSize = 8 // of the state file's number in the head
)

var (
	table = crc32.MakeTable(crc32.Castagnoli)
	order = binary.LittleEndian
)

var (
	// ErrNoRoom means that the generation is full, that no generation has begun, or that the file cannot grow.
	ErrNoRoom = errors.New("no room in the log")
	// ErrTooLong means that the records are too long for a generation.
	ErrTooLong = errors.New("the records are longer than half of the log")
	// ErrUnknown means that the content of the disk is unknown.
	ErrUnknown = errors.New("the log could not be synced")
)

// Generation is a part of the log.
type Generation struct {
	File   uint64 // random ID of the state file; a copy that does not use the log has another one
	ID     uint64 // random; 0: no generation
	Before uint64 // ID of the generation that it continues
	After  uint64 // number of frames of that generation
	Base   uint64 // number of the transaction of the state file that began it
}

// NewGeneration returns a new random ID.
func NewGeneration() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return order.Uint64(b[:]) | 1
}

// Place is a place in the log: the next frame of a generation.
type Place struct {
	Generation uint64
	Number     uint64 // of the frame in the generation
	At         int64  // offset in the file, in bytes
}

// Log is an open file to which frames are appended. Only one goroutine may use it at a time.
type Log struct {
	path    string
	file    *os.File
	info    os.FileInfo
	maxSize int64 // in bytes
	size    int64 // current size in bytes

	generation Generation
	number     uint64 // of the next frame
	at         int64  // of the next frame
	used       int64  // bytes since the generation began
	lastAt     int64  // where the newest frame is
	needed     int64  // bytes of the frame that had no room
	head       [headSize]byte
}

// Open opens or creates the file; the caller syncs the folder. maxSize is its maximum size in bytes, a multiple of 64
// KiB. The next frame is written at offset at. No generation has begun.
func Open(path string, maxSize, at int64) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	is, err := f.Stat()
	if err == nil && !is.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if at < 0 || at >= maxSize || at%Block != 0 {
		at = 0
	}
	return &Log{path: path, file: f, info: is, maxSize: maxSize, size: is.Size(), at: at}, nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Begin makes the first frame of a generation durable, and grows the file for more frames. It returns the size of the
// file. The previous generation continues until Began. ErrNoRoom means that the file cannot grow.
func (l *Log) Begin(g Generation) (size int64, err error) {
	at := l.At()
	if err := l.grow(at + Block + l.needed); err != nil {
		return 0, err
	}
	if _, err := l.file.WriteAt(l.encode(g, 0, nil, 0), at); err != nil {
		return 0, noRoom(err)
	}
	if err := fdatasync(l.file); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return l.size, nil
}

// Began is called when the state file names the generation whose first frame Begin wrote. The zero value means that no
// generation begins.
func (l *Log) Began(g Generation) {
	l.generation, l.number, l.used, l.needed = g, 0, 0, 0
	if g.ID != 0 {
		l.at = l.At()
		l.appended(l.encode(g, 0, nil, 0), l.at)
	}
}

// appended records that a frame was written at an offset.
func (l *Log) appended(frame []byte, at int64) {
	size := int64(len(frame))
	copy(l.head[:], frame)
	l.lastAt, l.at, l.used = at, at+size, l.used+size
	l.number++
}

// At returns the offset of the next frame; see Place.
func (l *Log) At() int64 { return l.at % l.maxSize }

// Number returns the number of the next frame in its generation.
func (l *Log) Number() uint64 { return l.number }

// Append makes records and the reserved revision durable. After an error other than ErrUnknown, they are not in the
// log.
func (l *Log) Append(records []store.Record, reserved int64) error {
	if l.generation.ID == 0 {
		return ErrNoRoom
	}
	frame := l.encode(l.generation, l.number, records, reserved)
	size := int64(len(frame))
	if size > l.maxSize/2-Block {
		return ErrTooLong
	}
	at, skipped := l.at, int64(0)
	if at+size > l.maxSize {
		at, skipped = 0, l.maxSize-at
	}
	if l.used+skipped+size > l.maxSize/2 || at+size > l.size {
		l.needed = size
		return ErrNoRoom
	}
	if _, err := l.file.WriteAt(frame, at); err != nil {
		return noRoom(err)
	}
	if err := fdatasync(l.file); err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	l.used += skipped
	l.appended(frame, at)
	return nil
}

// sizeStep is the minimum size of the file in bytes. The size doubles up to maxSize. The file is allocated in advance,
// because a sync of existing blocks writes no metadata.
const sizeStep = 16 * Block

// grow fills the file with zeros, at least up to size. The next sync includes them. It writes block by block: the
// kernel may keep the data of one call as one large page, and then count all of it as written with every frame.
func (l *Log) grow(size int64) error {
	if size > l.size {
		size = min(max((size+sizeStep-1)/sizeStep*sizeStep, 2*l.size), l.maxSize)
	}
	for l.size < size {
		if _, err := l.file.WriteAt(zeros[:], l.size); err != nil {
			return noRoom(err)
		}
		l.size = (l.size/Block + 1) * Block
	}
	return nil
}

// noRoom returns ErrNoRoom for a full disk.
func noRoom(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return err
}

func fdatasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// encode returns a frame.
func (l *Log) encode(g Generation, number uint64, records []store.Record, reserved int64) []byte {
	b := []byte(magic)
	for _, n := range []uint64{g.File, g.ID, g.Before, g.After, g.Base, number, uint64(reserved)} {
		b = order.AppendUint64(b, n)
	}
	b = append(b, zeros[:headSize-len(b)]...)
	for _, r := range records {
		b = appendRecord(b, r)
	}
	order.PutUint32(b[headSize-8:], uint32(len(b)-headSize))
	order.PutUint32(b[headSize-4:], sum(b, headSize))
	if rest := len(b) % Block; rest > 0 {
		b = append(b, zeros[rest:]...)
	}
	return b
}

var zeros [Block]byte

// sum returns the checksum of a frame whose head has the given length. frame must end with its body.
func sum(frame []byte, head int) uint32 {
	return crc32.Update(crc32.Checksum(frame[:head-4], table), table, frame[head:])
}

// appendRecord appends a record: the length of the path, the path, the revision, the length of the JSON plus one (0: a
// removal), and the JSON.
func appendRecord(b []byte, r store.Record) []byte {
	path := r.Key.Path()
	b = append(order.AppendUint16(b, uint16(len(path))), path...)
	b = binary.AppendUvarint(b, uint64(r.Rev))
	if r.JSON == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(r.JSON))+1), r.JSON...)
}

// Check returns store.ErrLost if the file was removed, replaced, or no longer contains the newest frame. It needs few
// system calls.
func (l *Log) Check() error {
	is, err := os.Stat(l.path)
	if err != nil || !os.SameFile(is, l.info) {
		return fmt.Errorf("%w: %s", store.ErrLost, l.path)
	}
	var head [headSize]byte
	if l.number == 0 {
		return nil
	}
	if _, err := l.file.ReadAt(head[:], l.lastAt); err != nil || head != l.head {
		return fmt.Errorf("%w: another process has written to %s", store.ErrLost, l.path)
	}
	return nil
}
