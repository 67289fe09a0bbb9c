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

// Options are upstream's flags. The zero value: nothing is written down.
type Options struct {
	PolicyFile string
	Path       string // "-": standard output
	MaxSize    int    // megabytes of one file; 0: 100
	MaxBackups int    // older files kept; 0: all
	MaxAge     int    // days for which they are kept; 0: for ever
}

// Flags adds upstream's flags.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.PolicyFile, "audit-policy-file", "", "what of which requests goes to the audit log: a Policy of "+apiVersion)
	f.StringVar(&o.Path, "audit-log-path", "", "file of the audit log, - for standard output; empty: none is written")
	f.IntVar(&o.MaxSize, "audit-log-maxsize", 100, "size in megabytes at which the audit log begins a new file")
	f.IntVar(&o.MaxBackups, "audit-log-maxbackup", 0, "older files of the audit log that are kept; 0: all")
	f.IntVar(&o.MaxAge, "audit-log-maxage", 0, "days for which older files of the audit log are kept; 0: for ever")
}

// Open is the log that the options describe, nil for none, and what closes it.
func (o Options) Open(c clock.PassiveClock, log *zap.Logger) (*Log, io.Closer, error) {
	switch {
	case o.PolicyFile == "" && o.Path == "":
		return nil, none{}, nil
	case o.PolicyFile == "":
		return nil, none{}, errors.New("--audit-log-path: without --audit-policy-file nothing would be written there")
	case o.Path == "":
		return nil, none{}, errors.New("--audit-policy-file: --audit-log-path has to say where the log goes")
	case o.MaxSize < 0 || o.MaxBackups < 0 || o.MaxAge < 0:
		return nil, none{}, errors.New("--audit-log-maxsize, --audit-log-maxbackup and --audit-log-maxage are at least 0")
	}
	policy, err := LoadPolicy(o.PolicyFile)
	if err != nil {
		return nil, none{}, fmt.Errorf("--audit-policy-file: %w", err)
	}
	if o.Path == "-" {
		return New(os.Stdout, policy, c, log), none{}, nil
	}
	file, err := os.OpenFile(o.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // so that a bad path is known now
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
