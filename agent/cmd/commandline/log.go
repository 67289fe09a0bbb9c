package commandline

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The values of --log-format.
const (
	formatAuto    = "auto"
	formatConsole = "console"
	formatJSON    = "json"
)

// sampleLimit is the number of equal messages within a second that are logged; beyond it, every sampleLimit-th is.
const sampleLimit = 100

// Log configures the log.
type Log struct {
	Level  string
	Format string
	Recent *Recent `json:"-"` // its last lines; set by Open
}

// Flags adds the log's flags.
func (l *Log) Flags(f *pflag.FlagSet) {
	f.StringVar(&l.Level, "log-level", "info", "Lowest level that is logged: debug, info, warn or error.")
	f.StringVar(&l.Format, "log-format", formatAuto,
		"Format of the log on standard error: json, console, or auto, which is console on a terminal and json elsewhere.")
}

// Check returns an error for invalid values of the flags.
func (l *Log) Check() error {
	if _, err := zapcore.ParseLevel(l.Level); err != nil {
		return fmt.Errorf("--log-level must be debug, info, warn or error, got %q", l.Level)
	}
	switch l.Format {
	case formatAuto, formatConsole, formatJSON:
		return nil
	}
	return fmt.Errorf("--log-format must be auto, console or json, got %q", l.Format)
}

// Open returns the logger, which writes to stderr.
func (l *Log) Open(stderr *os.File) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(l.Level)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	l.Recent = &Recent{}
	core := newRepeated(zapcore.NewCore(l.encoder(stderr), zap.CombineWriteSyncers(stderr, l.Recent), level))
	sampled := zapcore.NewSamplerWithOptions(core, time.Second, sampleLimit, sampleLimit)
	return zap.New(sampled, zap.AddCaller(), zap.ErrorOutput(zapcore.Lock(stderr))), nil
}

func (l *Log) encoder(stderr *os.File) zapcore.Encoder {
	c := zap.NewProductionEncoderConfig()
	if l.console(stderr) {
		c.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		c.EncodeLevel = zapcore.CapitalLevelEncoder
		c.CallerKey = zapcore.OmitKey
		c.ConsoleSeparator = "  "
		return zapcore.NewConsoleEncoder(c)
	}
	c.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return zapcore.NewJSONEncoder(c)
}

func (l *Log) console(stderr *os.File) bool {
	return l.Format == formatConsole || l.Format != formatJSON && isTerminal(stderr)
}

// Greet prints the next steps, if the server was started on a terminal. address is that of the API, dir the data
// folder.
func (l *Log) Greet(stderr *os.File, address, dir string) {
	if isTerminal(stderr) && l.console(stderr) {
		greeting(stderr, address, dir)
	}
}

func greeting(w io.Writer, address, dir string) {
	fmt.Fprintf(w, `
Monopod is ready. In another terminal:

  export KUBECONFIG=%s
  kubectl get pods -A

Dashboard: https://%s/ (its token is in %s)

`, filepath.Join(dir, "admin.kubeconfig"), address, filepath.Join(dir, "pki", "admin.token"))
}
