package logs

import (
	"bytes"
	"io"
	"os"
)

// tailBlock is read at a time from the end.
const tailBlock = 64 << 10

// seekTail moves f to where its last n lines begin; n below 0: to the start.
func seekTail(f *os.File, n int64) error {
	if n < 0 {
		return nil
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return err
	}
	at, err := tailOffset(f, size, n)
	if err != nil {
		return err
	}
	_, err = f.Seek(at, io.SeekStart)
	return err
}

// tailOffset finds the offset after the (n+1)th newline from the end; records
// that only continue a line do not count.
func tailOffset(f io.ReaderAt, size, n int64) (int64, error) {
	var rest []byte // the start of the record cut by the block's edge
	lines, end := int64(0), size
	for end > 0 {
		start := max(0, end-tailBlock)
		block := make([]byte, end-start, int64(len(rest))+end-start)
		if _, err := f.ReadAt(block, start); err != nil {
			return 0, err
		}
		block = append(block, rest...)
		for {
			i := bytes.LastIndexByte(bytes.TrimSuffix(block, []byte("\n")), '\n')
			if i < 0 {
				break
			}
			if whole(block[i+1:]) {
				if lines++; lines > n {
					return start + int64(i) + 1 + int64(len(block[i+1:])), nil
				}
			}
			block = block[:i+1]
		}
		rest, end = block, start
	}
	if whole(rest) {
		if lines++; lines > n {
			return int64(len(rest)), nil
		}
	}
	return 0, nil
}

// whole says whether a record ends a line.
func whole(record []byte) bool {
	line, err := Parse(bytes.TrimSuffix(record, []byte("\n")))
	return err == nil && !line.Partial
}
