package setup

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/spf13/pflag"

	"monopod/apiserver/access/entry"
	"monopod/apiserver/audit"
	"monopod/apiserver/flow"
	"monopod/apiserver/registry/admission/plugins"
	"monopod/apiserver/registry/allocate"
	"monopod/store/state"
)

// Settings are the API server's flags.
type Settings struct {
	Listen    string
	Profiling bool
	Serving   entry.Serving
	Services  allocate.Ranges
	State     state.Place
	Limits    flow.Limits
	Audit     audit.Options
	// DisabledPlugins are the names of admission plugins that do not run.
	DisabledPlugins []string
	// NotReadySeconds and UnreachableSeconds are how long pods without a toleration of their own tolerate such nodes.
	NotReadySeconds, UnreachableSeconds int64

	services allocate.Config // set by Complete
}

// Flags adds the flags to the flag sets of their subjects.
func (s *Settings) Flags(group func(subject string) *pflag.FlagSet) {
	serving := group("API server")
	serving.StringVar(&s.Listen, "listen", "127.0.0.1:6443",
		"Address and port for HTTPS. Port 0 picks a free one, which admin.kubeconfig names.")
	serving.BoolVar(&s.Profiling, "profiling", true,
		"Serve Go's profiles at /debug/pprof/, to users who may read that path.")
	s.Serving.Flags(serving)
	s.Limits.Flags(serving)
	s.Services.Flags(serving)
	serving.StringSliceVar(&s.DisabledPlugins, "disable-admission-plugins", nil,
		"Comma-separated list of admission plugins that are disabled although they are enabled by default, "+
			"for example ServiceAccount. Names that this server does not have are ignored.")
	serving.Int64Var(&s.NotReadySeconds, "default-not-ready-toleration-seconds", plugins.DefaultTolerationSeconds,
		"Time in seconds for which pods tolerate that their node is not ready, unless they have such a toleration. "+
			"Then they are evicted if another node is ready.")
	serving.Int64Var(&s.UnreachableSeconds, "default-unreachable-toleration-seconds", plugins.DefaultTolerationSeconds,
		"Time in seconds for which pods tolerate that their node is unreachable, unless they have such a toleration. "+
			"Then they are evicted if another node is ready.")
	s.Audit.Flags(group("audit"))
	s.State.Flags(group("storage"))
}

// Complete validates the flags and sets defaults. dataDir is absolute.
func (s *Settings) Complete(dataDir string) error {
	if _, _, err := net.SplitHostPort(s.Listen); err != nil {
		return fmt.Errorf("--listen: %w; give it as HOST:PORT, for example --listen=127.0.0.1:0", err)
	}
	s.State.DataDir = dataDir
	s.State.Traces = []string{filepath.Join(dataDir, "pki", "ca.crt")}
	var err error
	s.services, err = s.Services.Parse()
	return errors.Join(err, s.Serving.Check())
}

// ServiceRange returns the address range of Services.
func (s *Settings) ServiceRange() allocate.Config { return s.services }

func (c Config) path(name ...string) string {
	return filepath.Join(append([]string{c.DataDir}, name...)...)
}
