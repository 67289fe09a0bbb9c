package cmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"monopod/agent/cmd/commandline"
)

// kettleCommand returns `monopod kettle`, a command that exists only in this test.
func kettleCommand(dataDir string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "kettle",
		Short:   "Boil water",
		GroupID: Maintain,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.Println("boiled in", dataDir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", dataDir, "Data folder of the server, as given to serve.")
	return cmd
}

// A new command needs only one function: the help lists it under its subject, and an environment variable sets its
// flag.
func TestNewCommandIsOneFunction(t *testing.T) {
	t.Parallel()
	run := func(args ...string) string {
		t.Helper()
		root := &cobra.Command{Use: "monopod", PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return commandline.FromEnvironment(cmd, []string{"MONOPOD_DATA_DIR=/kitchen"})
		}}
		AddTo(root, append(All(Deps{DataDir: "/data"}), kettleCommand("/data"))...)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(args)
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	_, after, found := strings.Cut(run("--help"), Maintain+":\n")
	listed, _, _ := strings.Cut(after, "\n\n")
	if !found || !strings.Contains(listed, "  kettle ") || !strings.Contains(listed, "Boil water") ||
		!strings.Contains(listed, "  snapshot ") {
		t.Errorf("the help lacks the command under %s:\n%s", Maintain, listed)
	}
	for want, args := range map[string][]string{
		"boiled in /kitchen\n": {"kettle"},
		"boiled in /pot\n":     {"kettle", "--data-dir=/pot"},
	} {
		if got := run(args...); got != want {
			t.Errorf("%v: %q, want %q", args, got, want)
		}
	}
}
