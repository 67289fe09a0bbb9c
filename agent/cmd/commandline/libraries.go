package commandline

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// Libraries passes on what Kubernetes' libraries log with klog, which would be lines of another format: for example
// each stream of kubectl exec that fails. Whoever called gets the error too, so it is logged at level debug; a panic is
// an error.
func Libraries(log *zap.Logger) {
	klog.SetLoggerWithOptions(logr.New(libraries{log: log.Named("library")}), klog.ContextualLogger(true))
}

// libraries is a logr.LogSink.
type libraries struct {
	log    *zap.Logger
	values []any
}

// Init implements logr.LogSink.
func (libraries) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink. Levels are those of klog's -v, whose default is 0.
func (libraries) Enabled(level int) bool { return level == 0 }

// Info implements logr.LogSink.
func (l libraries) Info(_ int, message string, values ...any) {
	l.write(zapcore.DebugLevel, message, nil, values)
}

// Error implements logr.LogSink.
func (l libraries) Error(err error, message string, values ...any) {
	level := zapcore.DebugLevel
	if strings.Contains(message, "panic") {
		level = zapcore.ErrorLevel
	}
	l.write(level, message, err, values)
}

func (l libraries) write(level zapcore.Level, message string, err error, values []any) {
	entry := l.log.Check(level, "a library logged")
	if entry == nil {
		return
	}
	fields := []zap.Field{zap.String("text", message), zap.Error(err)}
	values = append(l.values[:len(l.values):len(l.values)], values...)
	for i := 1; i < len(values); i += 2 {
		fields = append(fields, zap.String(fmt.Sprint(values[i-1]), fmt.Sprint(values[i])))
	}
	entry.Write(fields...)
}

// WithValues implements logr.LogSink.
func (l libraries) WithValues(values ...any) logr.LogSink {
	l.values = append(l.values[:len(l.values):len(l.values)], values...)
	return l
}

// WithName implements logr.LogSink.
func (l libraries) WithName(name string) logr.LogSink {
	l.log = l.log.Named(name)
	return l
}
