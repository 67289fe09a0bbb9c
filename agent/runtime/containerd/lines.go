package containerd

import (
	"bytes"
	"regexp"
	"strconv"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// lineLog passes containerd's output on to our log, line by line. It is written
// to by one goroutine.
type lineLog struct {
	log  *zap.Logger
	rest []byte // a line that has not ended yet
}

// maxLine bounds the buffer of output without newlines.
const maxLine = 64 << 10

func (l *lineLog) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found && len(l.rest) < maxLine {
			return len(p), nil
		}
		l.rest = rest
		level, text := parseLine(string(line))
		if entry := l.log.Check(level, "containerd says"); entry != nil {
			entry.Write(zap.String("text", text))
		}
	}
}

// klogPattern matches lines of CRI's streaming server, such as those of each kubectl
// exec, which tries a WebSocket before SPDY. The caller gets the error too.
var klogPattern = regexp.MustCompile(`^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^ \]]+\] (.*)$`)

var linePattern = regexp.MustCompile(`level=(\w+) msg=("(?:[^"\\]|\\.)*"|\S+)(.*)$`)

// parseLine reads a line of logrus' text format. Levels are lowered by one:
// containerd logs a warning for each pod's end, and most of its errors are results of
// calls, which the caller handles. A line that is not logrus' is an error, such as a
// panic.
func parseLine(line string) (zapcore.Level, string) {
	m := linePattern.FindStringSubmatch(line)
	if m == nil {
		if m = klogPattern.FindStringSubmatch(line); m != nil {
			return zapcore.DebugLevel, m[1]
		}
		return zapcore.ErrorLevel, line
	}
	text, err := strconv.Unquote(m[2])
	if err != nil {
		text = m[2]
	}
	switch m[1] {
	case "fatal", "panic":
		return zapcore.ErrorLevel, text + m[3]
	case "error":
		return zapcore.WarnLevel, text + m[3]
	default:
		return zapcore.DebugLevel, text + m[3]
	}
}
