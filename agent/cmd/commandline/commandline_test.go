package commandline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jedisct1/go-minisign"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/version"
)

// part has flags of three types.
type part struct {
	dir   string
	pods  int
	names []string
	grace time.Duration
}

func (p *part) Flags(f *pflag.FlagSet) {
	f.StringVar(&p.dir, "data-dir", "/default", "Folder.")
	f.IntVar(&p.pods, "max-pods", 110, "Pods.")
	f.StringSliceVar(&p.names, "controllers", []string{"*"}, "Controllers.")
	f.DurationVar(&p.grace, "grace-period", time.Minute, "Period.")
}

// program returns a command with the flags of p and a subcommand, which reads the environment environ.
func program(p *part, environ []string, run func(*cobra.Command) error) *cobra.Command {
	root := &cobra.Command{Use: "program", SilenceUsage: true, SilenceErrors: true, Version: "1",
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return FromEnvironment(cmd, environ) }}
	serve := &cobra.Command{Use: "serve", Long: "Serve.",
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) }}
	var g Groups
	g.Group("first").String("name", "", "Name.")
	g.Group("second", p)
	g.Group("first").String("address", "", "Address.")
	g.AddTo(serve)
	other := &cobra.Command{Use: "other"}
	other.Flags().Bool("force", false, "Force.")
	root.AddCommand(serve, other)
	return root
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	var p part
	environ := []string{"MONOPOD_DATA_DIR=/env", "MONOPOD_MAX_PODS=7", "MONOPOD_CONTROLLERS=*,-podgc", "MONOPOD_HELP=true",
		"PATH=/bin"}
	root := program(&p, environ, func(*cobra.Command) error { return nil })
	root.SetArgs([]string{"serve", "--max-pods=9"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if p.dir != "/env" || p.pods != 9 || !slices.Equal(p.names, []string{"*", "-podgc"}) || p.grace != time.Minute {
		t.Errorf("got %+v", p)
	}
}

func TestBadEnvironment(t *testing.T) {
	t.Parallel()
	root := program(&part{}, []string{"MONOPOD_MAX_PODS=many"}, func(*cobra.Command) error {
		t.Error("the command ran despite the errors")
		return nil
	})
	root.SetArgs([]string{"serve"})
	err := root.Execute()
	if err == nil || !strings.HasPrefix(err.Error(), `environment variable MONOPOD_MAX_PODS: invalid argument "many"`) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// An error about the command line contains the usage of the command.
func TestUsageOfMisusedCommands(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"serve --none":  "monopod: unknown flag: --none; usage: program serve [flags]; see program serve --help\n",
		"serve --force": "monopod: unknown flag: --force; usage: program serve [flags]; see program serve --help\n",
		"none":          `monopod: unknown command "none" for "program"; usage: program; see program --help` + "\n",
		"serve":         "monopod: it failed\n",
		"images bogus": `monopod: unknown command "bogus" for "program images"; usage: program images COMMAND; see ` +
			`program images --help` + "\n",
	} {
		root := program(&part{}, nil, func(*cobra.Command) error { return errors.New("it failed") })
		images := &cobra.Command{Use: "images"}
		images.AddCommand(&cobra.Command{Use: "ls", Run: func(*cobra.Command, []string) {}})
		root.AddCommand(images)
		RefuseUnknown(root)
		root.SilenceErrors, root.SilenceUsage = true, true
		root.SetArgs(strings.Fields(args))
		cmd, err := root.ExecuteC()
		var out bytes.Buffer
		if code := Fail(&out, cmd, err); code != 1 || out.String() != want {
			t.Errorf("%s: %d %q, want %q", args, code, &out, want)
		}
	}
}

// Fail prints a system error on one line, with a remedy unless it already contains one.
func TestSystemErrors(t *testing.T) {
	t.Parallel()
	open := func(err error) error { return &os.PathError{Op: "open", Path: "/x", Err: err} }
	for want, err := range map[string]error{
		"open /x: no space left on device; free space there, or choose another disk": errors.Join(open(syscall.ENOSPC),
			open(syscall.ENOSPC)),
		"open /x: permission denied; run it as root, or as the owner of the file": open(syscall.EACCES),
		"open /x: permission denied: choose a folder":                             fmt.Errorf("%w: choose a folder", open(syscall.EACCES)),
		"open /x: no such file or directory; check the path":                      open(syscall.ENOENT),
		`number "x": invalid syntax`:                                              errors.New(`number "x": strconv.ParseInt: parsing "x": invalid syntax`),
		"it lacks:\n  a\n  b":                                                     errors.New("it lacks:\n  a\n  b"),
	} {
		var out bytes.Buffer
		Fail(&out, program(&part{}, nil, nil), err)
		if out.String() != "monopod: "+want+"\n" {
			t.Errorf("got %q, want %q", &out, want)
		}
	}
}

// An error about a flag names the environment variable that set it.
func TestExplain(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"--max-pods must be positive, got -1": "--max-pods must be positive, got -1 (environment variable " +
			"MONOPOD_MAX_PODS sets --max-pods)",
		"--max-pods-of-all: no": "--max-pods-of-all: no",
		"--data-dir: no":        "--data-dir: no", // from the command line
	} {
		root := program(
			&part{},
			[]string{"MONOPOD_MAX_PODS=-1", "MONOPOD_DATA_DIR=/env"},
			func(*cobra.Command) error { return errors.New(said) },
		)
		root.SetArgs([]string{"serve", "--data-dir=/flag"})
		cmd, err := root.ExecuteC()
		if got := Explain(cmd, err).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	var unknown []string
	root := program(&part{}, nil, func(cmd *cobra.Command) error {
		unknown = Unknown(
			cmd,
			[]string{"MONOPOD_DATADIR=/x", "MONOPOD_DATA_DIR=/x", "MONOPOD_FORCE=true", "MONOPOD_ADDRESS=", "MONOPOD=1"},
		)
		return nil
	})
	root.SetArgs([]string{"serve"})
	if err := root.Execute(); err != nil || !slices.Equal(unknown, []string{"MONOPOD_DATADIR"}) {
		t.Errorf("got %v, %v", unknown, err)
	}
}

func TestHelpInGroups(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := program(&part{}, nil, nil)
	root.SetOut(&out)
	root.SetArgs([]string{"serve", "--help"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, want := range []string{"Serve.\n", "First flags:", "--address", "--name", "Second flags:", "--data-dir",
		"Other flags:", "--help"} {
		at := strings.Index(out.String(), want)
		if at <= last {
			t.Errorf("%s is at %d, want it after %d:\n%s", want, at, last, &out)
		}
		last = at
	}
}

func TestLogFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		formatAuto:    `{"level":"info"`, // a file is not a terminal
		formatJSON:    `{"level":"info"`,
		formatConsole: "INFO  ready  {\"address\": \"here\"}\n",
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		l := Log{Level: "info", Format: format}
		if err := l.Check(); err != nil {
			t.Error(err)
		}
		log, err := l.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("hidden")
		log.Info("ready", zap.String("address", "here"))
		l.Greet(file, "127.0.0.1:6443", "/data") // prints nothing, because file is not a terminal
		got, err := os.ReadFile(file.Name())
		if err != nil || !strings.Contains(string(got), want) || strings.Count(string(got), "\n") != 1 {
			t.Errorf("%s: got %q, %v", format, got, err)
		}
	}
}

// The logger writes a repeated warning at once, and then at growing intervals.
func TestRepeatedWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		log := zap.New(newRepeated(core))
		start, pod := time.Now(), log.With(zap.String("pod", "a"))
		for range 24 * 60 * 60 { // every second for a day
			pod.Warn("failed", zap.Error(errors.New("no")), zap.Duration("took", time.Since(start)))
			time.Sleep(time.Second)
		}
		var at []time.Duration
		left := 0
		for _, e := range logs.All() {
			at = append(at, e.Time.Sub(start).Round(time.Second))
			if n, ok := e.ContextMap()["repeated"].(int64); ok {
				left += int(n)
			}
		}
		if len(at) < 28 || len(at) > 36 || at[1] != 10*time.Second || at[2] != 30*time.Second || at[3] != 70*time.Second {
			t.Errorf("logged %d times: %v", len(at), at)
		}
		if left+len(at) < 23*60*60 {
			t.Errorf("the log entries count %d repetitions", left)
		}
		logs.TakeAll()
		log.With(zap.String("pod", "b")).Warn("failed", zap.Error(errors.New("no")))
		pod.Warn("failed", zap.Error(errors.New("something else")))
		for range 3 {
			pod.Info("failed")
		}
		if logs.Len() != 5 {
			t.Errorf("entries with other text, level or fields: %v", logs.All())
		}
		time.Sleep(3 * time.Hour) // then the warning counts as new
		logs.TakeAll()
		pod.Warn("failed", zap.Error(errors.New("no")))
		if logs.Len() != 1 || len(logs.All()[0].ContextMap()) != 2 {
			t.Errorf("entries after three hours: %v", logs.All())
		}
	})
}

func TestLogCheck(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]Log{
		`--log-level must be debug, info, warn or error, got "loud"`: {Level: "loud", Format: formatAuto},
		`--log-format must be auto, console or json, got "text"`:     {Level: "info", Format: "text"},
	} {
		if err := l.Check(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestGreeting(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	greeting(&out, "127.0.0.1:6443", "/data")
	for _, want := range []string{"export KUBECONFIG=/data/admin.kubeconfig\n", "kubectl get pods",
		"https://127.0.0.1:6443/", "/data/pki/admin.token"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, &out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	v := Versions{Kubernetes: version.Info{GitVersion: "v1.37.2"}, Monopod: built(&debug.BuildInfo{
		Main:     debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	}), Parts: inside("containerd=v2.4.2,runc=v1.5.3"), SigningKey: "E7620F1842B4E81F"}
	if v.Monopod.GitVersion != "v1.2.3" || v.Monopod.GitCommit != "abc" || v.Monopod.GitTreeState != "dirty" {
		t.Errorf("got %+v", v.Monopod)
	}
	for args, want := range map[string]string{
		"":        "Monopod v1.2.3 (Kubernetes v1.37.2, ",
		"-o=yaml": "kubernetesVersion:\n",
		"-o=json": "{\n",
		"-o=text": `--output must be json or yaml, got "text"`,
	} {
		cmd := VersionCommand(v)
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SilenceUsage = true
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.Execute(); err == nil && !strings.HasPrefix(out.String(), want) || err != nil && err.Error() != want {
			t.Errorf("%s: got %s, %v", args, &out, err)
		}
		var back Versions
		if args == "-o=json" && (json.Unmarshal(out.Bytes(), &back) != nil || back != v) {
			t.Errorf("got %s", &out)
		}
	}
	for _, want := range []string{"\ncommit       abc ", "\ncontainerd   v2.4.2\nrunc         v1.5.3\nkubectl      not inside\n",
		"\nsigning key  E7620F1842B4E81F"} {
		if !strings.Contains(v.text(), want) {
			t.Errorf("%s lacks %q", v.text(), want)
		}
	}
	// The key of minisign's documentation has this ID.
	key, err := minisign.NewPublicKey("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3")
	if err != nil || KeyID(key) != v.SigningKey {
		t.Errorf("the key %s: %v", KeyID(key), err)
	}
}
