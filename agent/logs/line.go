// Package logs reads and rotates the log files that the runtime writes for containers.
//
//   - Read: writes a log as the API shows it, and follows it (read.go, tail.go, successor.go).
//   - Rotator: rotates logs and shortens termination messages (rotator.go, rotate.go).
//   - Dir: the folders of logs: one for each pod, and a folder of symlinks for log shippers, like kubelet's
//     /var/log/containers (logdir.go).
package logs

import (
	"bytes"
	"errors"
	"time"
)

// Line is one record of a CRI log: "<RFC 3339 time> <stream> <tags> <text>".
type Line struct {
	At      time.Time
	Stamp   []byte // the time as written
	Stream  string // stdout or stderr
	Partial bool   // the text continues in the next record
	Text    []byte // with its newline unless Partial
}

var errLine = errors.New("not a CRI log line")

// Parse parses a record without its newline. The Line shares memory with it.
func Parse(b []byte) (Line, error) {
	stamp, rest, ok1 := bytes.Cut(b, []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tags, text, ok3 := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || !ok3 {
		return Line{}, errLine
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Line{}, errLine
	}
	first, _, _ := bytes.Cut(tags, []byte(":"))
	return Line{At: at, Stamp: stamp, Stream: string(stream), Partial: string(first) == "P", Text: text}, nil
}
