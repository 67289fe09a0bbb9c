package commandline

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"
)

// release is set by `make build VERSION=…`; otherwise the version is the one that Go derives from the commit.
var release string

// Versions contains the versions of the program and of the Kubernetes API that it serves.
type Versions struct {
	Monopod    version.Info `json:"monopodVersion"`
	Kubernetes version.Info `json:"kubernetesVersion"`
}

// NewVersions reads the program's version from Go's build information.
func NewVersions(kubernetes version.Info) Versions {
	build, _ := debug.ReadBuildInfo()
	return Versions{Monopod: built(build), Kubernetes: kubernetes}
}

func built(build *debug.BuildInfo) version.Info {
	v := version.Info{
		GitVersion: "unknown", GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build != nil {
		v.GitVersion = build.Main.Version
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				v.GitCommit = s.Value
			case "vcs.time":
				v.BuildDate = s.Value // the time of the commit, so that builds are reproducible
			case "vcs.modified":
				v.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
			}
		}
	}
	if release != "" {
		v.GitVersion = release
	}
	return v
}

// Built returns the time of the commit from which the program was built; zero if it is not known.
func (v Versions) Built() time.Time {
	t, _ := time.Parse(time.RFC3339, v.Monopod.BuildDate) // empty: not known
	return t
}

// Line returns the versions in one line, without the name of the program.
func (v Versions) Line() string {
	return fmt.Sprintf("%s (Kubernetes %s, %s %s)",
		v.Monopod.GitVersion, v.Kubernetes.GitVersion, v.Monopod.GoVersion, v.Monopod.Platform)
}

// VersionCommand is `monopod version`.
func VersionCommand(v Versions) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of monopod and of the Kubernetes whose API it serves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var text []byte
			var err error
			switch output {
			case "":
				text = []byte("Monopod " + v.Line())
			case "json":
				text, err = json.MarshalIndent(v, "", "  ")
			case "yaml":
				text, err = yaml.Marshal(v)
			default:
				return fmt.Errorf("--output must be json or yaml, got %q", output)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(text)))
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "Format of the output: json or yaml; by default one line of text.")
	return cmd
}
