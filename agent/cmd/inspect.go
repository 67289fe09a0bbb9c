package cmd

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"monopod/agent/cmd/commandline"
	"monopod/agent/node/check"
	"monopod/apiserver/kit/images"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/status"
)

type inspectOptions struct {
	local.Place
	file     string
	versions commandline.Versions
}

// inspectCommand is `monopod inspect`, which writes one archive with all facts that a bug report needs, without
// secrets. dataDir is the default of --data-dir.
func inspectCommand(dataDir string, versions commandline.Versions) *cobra.Command {
	c := &inspectOptions{Place: local.Place{DataDir: dataDir}, versions: versions}
	cmd := &cobra.Command{
		Use:     "inspect",
		GroupID: Look,
		Short:   "Write one archive for a bug report: configuration, state, metrics, objects and logs, without secrets",
		Long: "inspect collects the facts for a bug report in a .tar.gz file, and prints its contents. It leaves out the\n" +
			"data of Secrets and ConfigMaps, tokens, keys, passwords in URLs, and the values of variables, arguments\n" +
			"and fields whose names sound secret. Read it nevertheless before you send it. It also works while monopod\n" +
			"does not run.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.Flags(cmd.Flags())
	cmd.Flags().StringVarP(&c.file, "file", "f", "",
		"Archive to write (default monopod-inspect-TIME.tar.gz in the current folder). An existing file is replaced.")
	return cmd
}

func (c *inspectOptions) run(cmd *cobra.Command) error {
	server, err := c.Open()
	if err != nil {
		return err
	}
	now := clock.RealClock{}.Now()
	if c.file == "" {
		c.file = "monopod-inspect-" + now.UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	to, err := createArchive(c.file, now)
	if err != nil {
		return fmt.Errorf("cannot write the archive: %w; name another one with --file", err)
	}
	progress := commandline.NewProgress(cmd.ErrOrStderr(), "collecting", 0, words.Bytes)
	r := &report{ctx: cmd.Context(), server: server, to: to, progress: progress}
	err = errors.Join(c.collect(r, now), r.readme(), to.Close())
	progress.End()
	if err != nil {
		return err
	}
	return r.print(cmd.OutOrStdout(), c.file)
}

// collect adds all parts. Only a failure to write the archive is an error: its README lists parts that cannot be read.
func (c *inspectOptions) collect(r *report, now time.Time) error {
	cfg := check.Config{DataDir: c.DataDir, Runtime: "containerd",
		Clock: check.Clock{Now: now, Built: c.versions.Built()}}
	if dir, err := filepath.Abs(c.DataDir); err == nil {
		cfg.DataDir = dir
	}
	r.value("version.json", "the versions of monopod and of Kubernetes", c.versions)
	r.value("check.json", "the report of monopod check", check.Of(check.Collect(r.ctx, cfg)))
	r.folder("data-folder.txt", "names, sizes and modes of the files in the data folder, without their contents",
		c.DataDir)
	r.status("status.json", "the report of monopod status", now)
	r.page("readyz.txt", "the checks of the server", "/readyz?verbose")
	r.page("config.json", "the configuration in effect", "/configz")
	r.page("log.txt", "the last lines of monopod's log", status.LogPath)
	r.page("metrics.txt", "metrics of the server, controllers and agent", "/metrics")
	r.page("goroutines.txt", "the stacks of all goroutines", "/debug/pprof/goroutine?debug=2")
	r.page("memory.txt", "a profile of the heap", "/debug/pprof/heap?debug=1")
	r.page("requests.txt", "requests that wait or run, by priority level",
		"/debug/api_priority_and_fairness/dump_priority_levels")
	r.page("images.json", "the images of the node", images.Path)
	r.objects()
	r.logs()
	return r.err
}

// print lists the contents of the archive.
func (r *report) print(out io.Writer, file string) error {
	fmt.Fprintf(out, "%s contains:\n\n%s\n", file, r.list())
	_, err := fmt.Fprintf(out, "Left out: %s.\nLook through it before you send it to anybody.\n",
		strings.Join(leftOut, ", "))
	return err
}
