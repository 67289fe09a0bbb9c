package commandline

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// RedirectKlog redirects the klog output of Kubernetes' libraries to log, for example about each failed stream of
// kubectl exec. The level is debug, because callers also get the error; for a panic it is error.
func RedirectKlog(log *zap.Logger) {
	klog.SetLoggerWithOptions(logr.New(klogSink{log: log.Named("library")}), klog.ContextualLogger(true))
}

// klogSink is a logr.LogSink.
type klogSink struct {
	log    *zap.Logger
	values []any
}

// Init implements logr.LogSink.
func (klogSink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink. Levels are those of klog's -v, whose default is 0.
func (klogSink) Enabled(level int) bool { return level == 0 }

// Info implements logr.LogSink.
func (l klogSink) Info(_ int, message string, values ...any) {
	l.write(zapcore.DebugLevel, message, nil, values)
}

// Error implements logr.LogSink.
func (l klogSink) Error(err error, message string, values ...any) {
	level := zapcore.DebugLevel
	if strings.Contains(message, "panic") {
		level = zapcore.ErrorLevel
	}
	l.write(level, message, err, values)
}

func (l klogSink) write(level zapcore.Level, message string, err error, values []any) {
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
func (l klogSink) WithValues(values ...any) logr.LogSink {
	l.values = append(l.values[:len(l.values):len(l.values)], values...)
	return l
}

// WithName implements logr.LogSink.
func (l klogSink) WithName(name string) logr.LogSink {
	l.log = l.log.Named(name)
	return l
}
