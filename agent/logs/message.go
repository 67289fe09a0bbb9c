package logs

import (
	"bytes"
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

// Message reads a termination message file; absent means empty.
func Message(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMessage))
	if err != nil {
		return ""
	}
	return string(b)
}

// Fallback is the end of a log in place of a message: 2048 bytes or 80 lines.
func Fallback(path string) string {
	var b bytes.Buffer
	if err := Read(context.Background(), path, Options{Tail: maxFallbackLine, Limit: -1}, &b); err != nil {
		return ""
	}
	text := b.Bytes()
	if len(text) > maxFallback {
		text = text[len(text)-maxFallback:]
	}
	return string(text)
}
