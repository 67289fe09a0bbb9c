package commandline

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jedisct1/go-minisign"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"
)

// release is set by `make build VERSION=…`; otherwise the version is the one that Go derives from the commit.
var release string

// The build sets these, too: the programs inside, as containerd=v2.4.2,runc=v1.5.3, and the public key of minisign whose
// signatures `monopod upgrade` accepts. Empty: none.
var parts, publicKey string

// PublicKey is the key inside the program that signs releases, as minisign prints it; empty: there is none.
func PublicKey() string { return publicKey }

// Parts are the versions of the programs inside; empty: it is not inside.
type Parts struct {
	Containerd string `json:"containerd,omitempty"`
	Runc       string `json:"runc,omitempty"`
	Kubectl    string `json:"kubectl,omitempty"`
}

// Versions contains the versions of the program, of the Kubernetes API that it serves, and of what is inside.
type Versions struct {
	Monopod    version.Info `json:"monopodVersion"`
	Kubernetes version.Info `json:"kubernetesVersion"`
	Parts      Parts        `json:"parts"`
	SigningKey string       `json:"signingKey,omitempty"` // the ID of PublicKey
}

// NewVersions reads the program's version from Go's build information.
func NewVersions(kubernetes version.Info) Versions {
	build, _ := debug.ReadBuildInfo()
	v := Versions{Monopod: built(build), Kubernetes: kubernetes, Parts: inside(parts)}
	if key, err := minisign.NewPublicKey(publicKey); err == nil {
		v.SigningKey = KeyID(key)
	}
	return v
}

// inside reads the variable parts.
func inside(parts string) (p Parts) {
	for part := range strings.SplitSeq(parts, ",") {
		switch name, version, _ := strings.Cut(part, "="); name {
		case "containerd":
			p.Containerd = version
		case "runc":
			p.Runc = version
		case "kubectl":
			p.Kubectl = version
		}
	}
	return p
}

// KeyID returns the ID of a key as minisign prints it.
func KeyID(key minisign.PublicKey) string {
	return fmt.Sprintf("%016X", binary.LittleEndian.Uint64(key.KeyId[:]))
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

// text is what `monopod version` prints: the line, and what is inside.
func (v Versions) text() string {
	text := "Monopod " + v.Line() + "\n"
	if v.Monopod.GitCommit != "" {
		text += fmt.Sprintf("commit       %s of %s, %s\n", v.Monopod.GitCommit, v.Monopod.BuildDate, v.Monopod.GitTreeState)
	}
	for _, part := range [][2]string{
		{"containerd", v.Parts.Containerd}, {"runc", v.Parts.Runc}, {"kubectl", v.Parts.Kubectl},
	} {
		text += fmt.Sprintf("%-12s %s\n", part[0], cmp.Or(part[1], "not inside"))
	}
	return text + fmt.Sprintf("signing key  %s", cmp.Or(v.SigningKey, "none inside: monopod upgrade URL needs --key"))
}

// VersionCommand is `monopod version`.
func VersionCommand(v Versions) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of monopod, of the Kubernetes whose API it serves, and of the programs inside",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var text []byte
			var err error
			switch output {
			case "":
				text = []byte(v.text())
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
	cmd.Flags().StringVarP(&output, "output", "o", "", "Format of the output: json or yaml; by default text.")
	return cmd
}
