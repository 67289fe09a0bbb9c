package cmd

import (
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"monopod/agent/cmd/commandline"
	"monopod/agent/node/check"
)

// checkCommand is `monopod check`, which reports what this machine lacks to run monopod. dataDir is the default of
// --data-dir, and built is the build time of the program.
func checkCommand(dataDir string, built time.Time) *cobra.Command {
	cfg := check.Config{Listen: map[string]string{}}
	var output commandline.Output
	var listen, kubelet string
	cmd := &cobra.Command{
		Use:     "check",
		GroupID: Start,
		Short:   "Check whether this machine can run monopod: kernel, cgroups, network, disk, memory, clock, ports",
		Long: "check tries what monopod needs of this machine, and prints a line for each: the verdict, what it found,\n" +
			"and what to do. It leaves nothing behind. Its exit code is 1 if something is missing that monopod or its\n" +
			"pods require; warnings do not change it. The flags are those of serve.",
		Example: "  monopod check\n  monopod check --runtime=fake -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := output.Check(); err != nil {
				return err
			}
			if cfg.Runtime != "containerd" && cfg.Runtime != "fake" && cfg.Runtime != "none" {
				return fmt.Errorf("--runtime must be containerd, fake or none, got %q", cfg.Runtime)
			}
			if err := cfg.Options.Check(); err != nil {
				return err
			}
			if cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
				return fmt.Errorf("--data-dir: %w", err)
			}
			cfg.Listen["listen"], cfg.Listen["kubelet-listen"] = listen, kubelet
			cfg.Clock = check.Clock{Now: clock.RealClock{}.Now(), Built: built}
			return checkReport(cmd.OutOrStdout(), check.Of(check.Collect(cmd.Context(), cfg)), output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.DataDir, "data-dir", dataDir, "Data folder of the server, as given to serve.")
	f.StringVar(&listen, "listen", "127.0.0.1:6443", "Address of HTTPS, as given to serve.")
	f.StringVar(&kubelet, "kubelet-listen", "", "Address of the kubelet's API, as given to serve.")
	f.StringVar(&cfg.Runtime, "runtime", "containerd", "Container runtime, as given to serve: containerd, fake or none.")
	f.StringVar(&cfg.Options.Containerd, "containerd", "auto", "containerd, as given to serve.")
	output.Flags(f, ", a list with the fields name, verdict, found and remedy")
	return cmd
}

// colors of the verdicts have the same length, which keeps the columns straight.
var colors = map[check.Verdict]commandline.Color{
	check.OK: commandline.Green, check.Warning: commandline.Yellow, check.Missing: commandline.Red,
}

// checkReport prints the results. It returns an Exit error if something is missing.
func checkReport(out io.Writer, results []check.Result, output commandline.Output) error {
	var err error
	if output.JSON() {
		err = commandline.PrintJSON(out, results)
	} else {
		painter := commandline.NewPainter(out)
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		for _, r := range results {
			remedy := ""
			if r.Remedy != "" {
				remedy = "; " + r.Remedy
			}
			fmt.Fprintf(w, "%s\t%s\t%s%s\n", painter.Paint(colors[r.Verdict], string(r.Verdict)), r.Name, r.Found, remedy)
		}
		err = w.Flush()
	}
	if err == nil && check.Worst(results) == check.Missing {
		return &commandline.Exit{Code: 1}
	}
	return err
}
