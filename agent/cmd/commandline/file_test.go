package commandline

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settings are flags of every type in two groups; the name of the first group has two words.
type settings struct {
	file string
	part
	options map[string]string
	serial  bool
}

func (s *settings) groups() *Groups {
	var g Groups
	first := g.Group("API server")
	first.StringVar(&s.file, FileFlag, "", "File.")
	first.BoolVar(&s.serial, "serialize", true, "One at a time.")
	g.Group("pod", &s.part).StringToStringVar(&s.options, "options", nil, "Options.")
	return &g
}

// load sets s from a config file, an environment and arguments.
func (s *settings) load(t *testing.T, text string, environ []string, args ...string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "monopod.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g := s.groups()
	cmd := &cobra.Command{Use: "serve", SilenceUsage: true, SilenceErrors: true,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return FromEnvironment(cmd, environ) },
		RunE:    func(*cobra.Command, []string) error { return g.FromFile(s.file) }}
	g.AddTo(cmd)
	cmd.SetArgs(append(args, "--config="+path))
	return cmd.Execute()
}

// Flags take precedence over the environment, the environment over the file, and the file over defaults.
func TestFile(t *testing.T) {
	t.Parallel()
	var s settings
	err := s.load(t, `# a comment
api-server:
  serialize: false
pod:
  data-dir: /file
  max-pods: 5
  controllers: ["*", -podgc]
  options: {a: 1, b: "true"}
  grace-period: 90s
`, []string{"MONOPOD_MAX_PODS=7", "MONOPOD_DATA_DIR=/env"}, "--data-dir=/flag")
	if err != nil {
		t.Fatal(err)
	}
	if s.dir != "/flag" || s.pods != 7 || s.serial || s.grace != 90*time.Second ||
		!slices.Equal(s.names, []string{"*", "-podgc"}) || len(s.options) != 2 || s.options["b"] != "true" {
		t.Errorf("got %+v", s)
	}
}

func TestEmptyFiles(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "pod:\n", "pod: {}\n"} {
		s := settings{}
		if err := s.load(t, text, nil); err != nil || s.pods != 110 {
			t.Errorf("%q: %v, %d", text, err, s.pods)
		}
	}
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"not a mapping":   {"[]", "line 1: the file must be a mapping"},
		"invalid YAML":    {"a: [", "yaml: line 1: did not find expected node content"},
		"unknown section": {"pods: {}", `line 1: unknown section "pods"; known: api-server, pod`},
		"scalar section":  {"pod: 3", "line 1: section pod must be a mapping"},
		"unknown key":     {"pod:\n  max-podz: 3", `line 2: unknown key "max-podz"; monopod config prints all of them`},
		"key of another section": {"pod:\n  serialize: true",
			`line 2: unknown key "serialize"; it belongs to section "api-server"`},
		"key of --config": {"api-server:\n  config: x", `line 2: unknown key "config"`},
		"help":            {"other: {help: true}", `unknown section "other"`},
		"bad value":       {"pod:\n  max-pods: many", `line 2: invalid argument "many" for "--max-pods" flag`},
		"twice":           {"pod:\n  max-pods: 1\n  max-pods: 2", `line 3: "max-pods" is set twice`},
		"section twice":   {"pod: {}\npod: {}", `line 2: "pod" is set twice`},
		"nested":          {"pod:\n  controllers: [[a]]", "line 2: controllers: an item of the list must be a plain value"},
		"alias":           {"api-server: &a {}\npod: *a", "line 2: section pod must be a mapping"},
		"two documents":   {"pod: {}\n---\npod: {}", "it contains several documents"},
		"two mistakes":    {"pod: {x: 1, y: 2}", "unknown key \"y\""},
		"too large":       {strings.Repeat("#", maxFile+1), "it is larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := (&settings{}).load(t, c.text, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "--config: ") ||
				!strings.Contains(err.Error(), "monopod.yaml: ") {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if err := (&settings{}).groups().FromFile("/no/such/file"); err == nil ||
		err.Error() != "--config: /no/such/file: no such file or directory; monopod config prints a whole file" {
		t.Errorf("got %v", err)
	}
}

// The output of Print sets every flag to its value.
func TestPrint(t *testing.T) {
	t.Parallel()
	var s settings
	if err := s.load(t, "pod: {data-dir: 'yes: #', controllers: [], options: {a: 1, b: 2}, max-pods: 3}",
		nil); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]settings{"defaults": {}, "set": s} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			g := (&settings{}).groups()
			if name == "set" {
				g = (&s).again(t)
			}
			if err := g.Print(&out); err != nil {
				t.Fatal(err)
			}
			var twice strings.Builder
			var other settings
			if err := other.load(t, out.String(), nil); err != nil {
				t.Fatalf("%v in\n%s", err, out.String())
			}
			if err := other.again(t).Print(&twice); err != nil {
				t.Fatal(err)
			}
			if twice.String() != out.String() {
				t.Errorf("got\n%s\nwant\n%s", twice.String(), out.String())
			}
		})
	}
}

// again returns new groups of flags with the values of s.
func (s *settings) again(t *testing.T) *Groups {
	t.Helper()
	was := *s
	g := s.groups()
	for _, set := range g.sets.FlagSets {
		set.VisitAll(func(f *pflag.Flag) {
			if list, ok := f.Value.(pflag.SliceValue); ok {
				if err := list.Replace(was.names); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	s.dir, s.pods, s.grace, s.options, s.serial = was.dir, was.pods, was.grace, was.options, was.serial
	return g
}
