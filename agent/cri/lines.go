package cri

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

// maxLine keeps output without line ends from piling up.
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

var linePattern = regexp.MustCompile(`level=(\w+) msg=("(?:[^"\\]|\\.)*"|\S+)(.*)$`)

// parseLine reads a line of logrus' text format. What is not one, such as a
// panic, is an error.
func parseLine(line string) (zapcore.Level, string) {
	m := linePattern.FindStringSubmatch(line)
	if m == nil {
		return zapcore.ErrorLevel, line
	}
	text, err := strconv.Unquote(m[2])
	if err != nil {
		text = m[2]
	}
	levels := map[string]zapcore.Level{
		"info": zapcore.DebugLevel, "debug": zapcore.DebugLevel, "trace": zapcore.DebugLevel, "warning": zapcore.WarnLevel,
	}
	level, ok := levels[m[1]]
	if !ok {
		level = zapcore.ErrorLevel
	}
	return level, text + m[3]
}
