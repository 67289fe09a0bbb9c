package cmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/status"
)

// statusCommand is `monopod status`, which shows a running monopod at a glance. dataDir is the default of
// --data-dir.
func statusCommand(dataDir string) *cobra.Command {
	place := &local.Place{DataDir: dataDir}
	var output commandline.Output
	cmd := &cobra.Command{
		Use:     "status",
		GroupID: Look,
		Short:   "Show a running monopod at a glance: process, nodes, pods, disk, database, certificates, warnings",
		Long: "status asks a running monopod, with the rights of an admin. Its exit code is 0 if the API and all nodes\n" +
			"are ready, otherwise 1. Warnings alone do not change it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			server, err := place.Open()
			if err != nil {
				return err
			}
			if server.Local() && local.Joined(place.DataDir) {
				return statusOfJoined(cmd, server, output)
			}
			facts, err := status.Collect(cmd.Context(), server, clock.RealClock{}.Now())
			if err != nil {
				return err
			}
			r := status.Of(facts)
			if output.JSON() {
				err = commandline.PrintJSON(cmd.OutOrStdout(), r)
			} else {
				err = printStatus(cmd.OutOrStdout(), r, facts.Now)
			}
			if err == nil && !r.Ready {
				return &commandline.Exit{Code: 1}
			}
			return err
		},
	}
	place.Flags(cmd.Flags())
	output.Flags(cmd.Flags(), "")
	return cmd
}

// statusOfJoined shows the node of a machine that has joined. Its exit code is 1 if it is not ready or no server answers.
func statusOfJoined(cmd *cobra.Command, server *local.Server, output commandline.Output) error {
	r, err := readJoined(cmd.Context(), server)
	if err != nil {
		return err
	}
	if output.JSON() {
		err = commandline.PrintJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.print(cmd.OutOrStdout(), clock.RealClock{}.Now())
	}
	if err == nil && (r.Away != nil || len(r.Problems) > 0) {
		return &commandline.Exit{Code: 1}
	}
	return err
}

// printStatus prints a report on one screen.
func printStatus(out io.Writer, r status.Report, now time.Time) error {
	p := r.Process
	painter := commandline.NewPainter(out)
	ready := painter.Paint(commandline.Green, "is ready")
	if !r.Ready {
		ready = painter.Paint(commandline.Red, "is NOT ready")
	}
	fmt.Fprintf(out, "Monopod %s %s.\n\n", p.Version, ready)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "  "+name+"\t"+format+"\n", args...) }
	line("address", "%s (Kubernetes %s)", p.Address, p.Kubernetes)
	line("process", "pid %d, up %s", p.PID, words.Ago(now.Sub(p.Started)))
	for _, n := range r.Nodes {
		state := "ready"
		if !n.Ready {
			state = "NOT ready"
		}
		line("node", "%s: %s, %s, %s CPUs, %s memory, %s", n.Name, state, words.Count(n.Pods, "pod"), n.CPU, n.Memory,
			n.Runtime)
	}
	line("pods", "%s", phases(r.Pods))
	disk := ""
	if p.Disk != nil {
		disk = fmt.Sprintf(": %s of %s free", words.Bytes(int64(p.Disk.Free)), words.Bytes(int64(p.Disk.Total)))
	}
	line("data", "%s%s", p.DataDir, disk)
	line("database", "%s", database(p.State, now))
	if len(r.Expires) > 0 {
		c := slices.MinFunc(r.Expires, func(a, b status.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		line("certificates", "the first to expire is that of the %s, on %s", c.Name, c.NotAfter.Format(time.DateOnly))
	}
	if err := w.Flush(); err != nil || len(r.Warnings) == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n  - %s\n", painter.Paint(commandline.Yellow, "What needs attention:"),
		strings.Join(r.Warnings, "\n  - "))
	return err
}

// phases returns for example "3 Running, 1 Succeeded".
func phases(pods map[string]int) string {
	var all []string
	for _, phase := range slices.Sorted(maps.Keys(pods)) {
		all = append(all, fmt.Sprintf("%d %s", pods[phase], phase))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

func database(s status.State, now time.Time) string {
	var parts []string
	if s.Bytes > 0 {
		parts = append(parts, words.Bytes(s.Bytes))
	}
	switch {
	case s.Kind == "etcd":
		parts = append(parts, "in etcd")
	case s.Snapshot == nil:
		parts = append(parts, "no snapshot yet")
	default:
		parts = append(parts, fmt.Sprintf("last snapshot %s ago (%s)", words.Ago(now.Sub(s.Snapshot.Time)), s.Snapshot.Name))
	}
	return strings.Join(parts, ", ")
}
