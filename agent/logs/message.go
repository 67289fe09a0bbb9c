package logs

import (
	"context"
	"io"
	"os"
)

// Upstream's bounds of a termination message.
const (
	maxMessage      = 4096
	maxFallback     = 2048
	maxFallbackLine = 80
)

// Message returns the end of a termination message file, like upstream; empty if there is no file.
func Message(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	} else if skip := info.Size() - maxMessage; skip > 0 {
		if _, err := f.Seek(skip, io.SeekStart); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxMessage))
	if err != nil {
		return ""
	}
	return string(b)
}

// Fallback returns the end of a log as a termination message: at most 2048 bytes and 80 lines.
func Fallback(path string) string {
	var end tailBuffer
	if err := Read(context.Background(), path, Options{Tail: maxFallbackLine, Limit: -1}, &end); err != nil {
		return ""
	}
	return string(end)
}

// tailBuffer is a writer that keeps the last maxFallback bytes, because a line may be as long as the log.
type tailBuffer []byte

func (e *tailBuffer) Write(b []byte) (int, error) {
	*e = append(*e, b[max(0, len(b)-maxFallback):]...)
	*e = (*e)[max(0, len(*e)-maxFallback):]
	return len(b), nil
}
