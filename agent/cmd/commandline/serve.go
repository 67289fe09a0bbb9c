package commandline

import (
	"bytes"
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

// Server describes the commands serve and config, which share their flags. The environment and a file can set them,
// too.
type Server struct {
	Flags    *Groups
	File     func() string // value of FileFlag, or its default; empty: no file
	Log      *Log
	Complete func() error // validates the values and sets defaults
	Run      func(ctx context.Context, log *zap.Logger) error
}

// Commands returns the two commands. At most one of them runs, because they share their flags, of which there are some
// 300.
func (s Server) Commands() (serve, config *cobra.Command) { return s.serve(), s.config() }

func (s Server) serve() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the API server, the controllers and the node agent",
		Long: "Run the API server, the controllers and the node agent.\n\n" +
			"Every flag has an environment variable: MONOPOD_DATA_DIR is --data-dir. The flag takes precedence.\n" +
			"A file named by --config can set every flag, too; monopod config prints one.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.Flags.FromFile(s.File()); err != nil {
				return err
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
	s.Flags.AddTo(cmd)
	return cmd
}

func (s Server) config() *cobra.Command {
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
