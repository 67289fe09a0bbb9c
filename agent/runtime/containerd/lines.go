package containerd

import (
	"bytes"
	"regexp"
	"strconv"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// lineLog writes each line of containerd's output to the log. Only one goroutine may write to it.
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

// klogPattern matches lines of CRI's streaming server, which logs an error for each kubectl exec that tries a WebSocket
// before SPDY. The caller gets the error too.
var klogPattern = regexp.MustCompile(`^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^ \]]+\] (.*)$`)

var linePattern = regexp.MustCompile(`level=(\w+) msg=("(?:[^"\\]|\\.)*"|\S+)(.*)$`)

// parseLine returns the level and text of a line in logrus' format. Levels are lowered by one: containerd logs a
// warning whenever a pod ends, and most of its errors are results of calls, which the caller handles. A line in another
// format, such as that of a panic, is an error.
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
