package audit

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/utils/clock"
)

// Options contains the values of upstream's flags. The zero value disables the audit log.
type Options struct {
	PolicyFile string
	Path       string // "-": standard output
	MaxSize    int    // maximum size of a file in megabytes; 0: 100
	MaxBackups int    // maximum number of old files; 0: no limit
	MaxAge     int    // days to keep old files; 0: no limit
}

// Flags adds upstream's flags.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.PolicyFile, "audit-policy-file", "", "Path to the file that defines the audit policy, a Policy of "+
		apiVersion+".")
	f.StringVar(&o.Path, "audit-log-path", "",
		"Path of the audit log file; - is standard output. Without it, auditing is disabled.")
	f.IntVar(&o.MaxSize, "audit-log-maxsize", 100, "Maximum size in megabytes of the audit log file before it is rotated.")
	f.IntVar(&o.MaxBackups, "audit-log-maxbackup", 0, "Maximum number of old audit log files to keep. 0: no limit.")
	f.IntVar(&o.MaxAge, "audit-log-maxage", 0, "Maximum number of days to keep old audit log files. 0: no limit.")
}

// Open opens the log, or returns nil if it is disabled. The Closer closes the file.
func (o Options) Open(c clock.PassiveClock, log *zap.Logger) (*Log, io.Closer, error) {
	switch {
	case o.PolicyFile == "" && o.Path == "":
		return nil, none{}, nil
	case o.PolicyFile == "":
		return nil, none{}, errors.New("--audit-log-path requires --audit-policy-file")
	case o.Path == "":
		return nil, none{}, errors.New("--audit-policy-file requires --audit-log-path")
	case o.MaxSize < 0 || o.MaxBackups < 0 || o.MaxAge < 0:
		return nil, none{}, errors.New("--audit-log-maxsize, --audit-log-maxbackup and --audit-log-maxage must be at least 0")
	}
	policy, err := LoadPolicy(o.PolicyFile)
	if err != nil {
		return nil, none{}, fmt.Errorf("--audit-policy-file: %w", err)
	}
	if o.Path == "-" {
		return New(os.Stdout, policy, c, log), none{}, nil
	}
	file, err := os.OpenFile(o.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // detects an invalid path at start
	if err != nil {
		return nil, none{}, fmt.Errorf("--audit-log-path: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, none{}, fmt.Errorf("--audit-log-path: %w", err)
	}
	out := &lumberjack.Logger{Filename: o.Path, MaxSize: o.MaxSize, MaxBackups: o.MaxBackups, MaxAge: o.MaxAge}
	return New(out, policy, c, log), out, nil
}

type none struct{}

func (none) Close() error { return nil }
