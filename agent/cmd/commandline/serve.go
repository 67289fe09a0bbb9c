package commandline

import (
	"bytes"
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

// Server describes a command that runs a part of Monopod until it is stopped. The environment and a file can set its
// flags, too.
type Server struct {
	Use, Short, Long string
	Args             cobra.PositionalArgs // nil: none
	Flags            *Groups
	File             func() string // value of FileFlag, or its default; empty: no file
	Log              *Log
	Complete         func() error // validates the values and sets defaults
	Run              func(ctx context.Context, log *zap.Logger) error
}

// Command returns the command; take gets its arguments, and may be nil.
func (s Server) Command(take func(args []string)) *cobra.Command {
	cmd := &cobra.Command{
		Use: s.Use, Short: s.Short, Long: s.Long, Args: s.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.Flags.FromFile(s.File()); err != nil {
				return err
			}
			if take != nil {
				take(args)
			}
			if err := s.Complete(); err != nil {
				return err
			}
			log, err := s.Log.Open(os.Stderr)
			if err != nil {
				return err
			}
			RedirectKlog(log)
			for _, name := range Unknown(cmd, os.Environ()) {
				log.Warn("environment variable ignored: it matches no flag", zap.String("variable", name))
			}
			return s.Run(cmd.Context(), log)
		},
	}
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	s.Flags.AddTo(cmd)
	return cmd
}

// Config returns the command config, which prints the settings of serve. It shares the flags of the server, of which
// there are some 300: at most one of the two runs.
func (s Server) Config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print a configuration file for serve, with all settings and their descriptions",
		Long: "Print a configuration file for serve: every setting with its description and its value from the flags,\n" +
			"the environment variables and --config. An invalid setting is an error, as for serve.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.Flags.FromFile(s.File()); err != nil {
				return err
			}
			var out bytes.Buffer
			if err := errors.Join(s.Flags.Print(&out), s.Complete()); err != nil {
				return err
			}
			_, err := cmd.OutOrStdout().Write(out.Bytes())
			return err
		},
	}
	s.Flags.AddTo(cmd)
	return cmd
}
