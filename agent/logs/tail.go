package logs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
)

// tailBlock is the size of a read from the end.
const tailBlock = 64 << 10

// openTail opens the log at path where its last n lines begin; negative: at its start. After a recent rotation most
// lines are in the previous file, which openTail opens if it is not compressed.
func openTail(path string, n int64) (*os.File, error) {
	files, err := plain(path)
	if err != nil {
		return nil, err
	}
	missing := n
	f, err := os.Open(path)
	if len(files) == 1 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return seekTail(f, err, n)
	}
	if f != nil {
		lines, err := seek(f, n)
		if err != nil || n >= 0 && lines >= n && hasContent(f) { // if it is empty, the previous file may still be written
			return f, err
		}
		f.Close()
		missing = max(n-lines, min(n, 0))
	}
	before, err := os.Open(files[len(files)-2])
	if errors.Is(err, fs.ErrNotExist) { // compressed just now
		f, err = os.Open(path)
		return seekTail(f, err, n)
	}
	return seekTail(before, err, missing)
}

func seekTail(f *os.File, err error, n int64) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	_, err = seek(f, n)
	return f, err
}

// seek moves f to the start of its last n lines; negative: to the start of the file. lines is the number of these lines
// that f contains.
func seek(f *os.File, n int64) (lines int64, err error) {
	if n < 0 {
		return 0, nil
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return 0, err
	}
	at, lines, err := tailOffset(f, size, n)
	if err != nil {
		return 0, err
	}
	_, err = f.Seek(at, io.SeekStart)
	return min(lines, n), err
}

// tailOffset returns the offset of the last n lines, and the number of lines that it has read. Records that only
// continue a line do not count.
func tailOffset(f io.ReaderAt, size, n int64) (at, lines int64, err error) {
	var rest []byte // the start of the record cut by the block's edge
	end := size
	for end > 0 {
		start := max(0, end-tailBlock)
		block := make([]byte, end-start, int64(len(rest))+end-start)
		if _, err := f.ReadAt(block, start); err != nil {
			return 0, 0, err
		}
		block = append(block, rest...)
		for {
			i := bytes.LastIndexByte(bytes.TrimSuffix(block, []byte("\n")), '\n')
			if i < 0 {
				break
			}
			if whole(block[i+1:]) {
				if lines++; lines > n {
					return start + int64(i) + 1 + int64(len(block[i+1:])), lines, nil
				}
			}
			block = block[:i+1]
		}
		rest, end = block, start
	}
	if whole(rest) {
		if lines++; lines > n {
			return int64(len(rest)), lines, nil
		}
	}
	return 0, lines, nil
}

// whole reports whether a record ends a line.
func whole(record []byte) bool {
	line, err := Parse(bytes.TrimSuffix(record, []byte("\n")))
	return err == nil && !line.Partial
}
