// Package whycmd is `monopod why`, which explains in plain words why an object is as it is.
package whycmd

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"monopod/apiserver/client/completion"
	"monopod/apiserver/client/local"
	"monopod/apiserver/client/why"
	"monopod/apiserver/process/commandline"
)

type command struct {
	local.Place
	namespace string
	output    commandline.Output
}

// New returns the command; dataDir is the default of --data-dir.
func New(dataDir string) *cobra.Command {
	c := &command{Place: local.Place{DataDir: dataDir}}
	cmd := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Explain why an object is as it is: one sentence, the evidence, and what to do",
		Long: "why reads an object, its events, its pods, what it refers to, and the ends of the logs of containers that\n" +
			"failed, with the rights of the user. It prints one sentence with the cause, then the evidence, then what to do.\n" +
			"It explains pods, Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs, Services, Ingresses,\n" +
			"claims, nodes, autoscalers, disruption budgets and requests for certificates, and the conditions of all other kinds.",
		Example: "  monopod why pod/web-0\n  monopod why deploy/web -n shop\n  monopod why node/box -o json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args)
		},
	}
	cmd.ValidArgsFunction = completion.Objects(&c.Place, &c.namespace, false)
	c.Flags(cmd.Flags())
	cmd.Flags().StringVarP(&c.namespace, "namespace", "n", "", "Namespace of the object (default that of the kubeconfig, or default).")
	c.output.Flags(cmd.Flags(), " with the fields sentence, evidence and do")
	return cmd
}

func (c *command) run(cmd *cobra.Command, args []string) error {
	if err := c.output.Check(); err != nil {
		return err
	}
	kind, name, ok := strings.Cut(strings.Join(args, "/"), "/")
	if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("the object must be given as KIND/NAME, for example pod/web-0, got %q", strings.Join(args, " "))
	}
	server, err := c.Open()
	if err != nil {
		return err
	}
	if c.namespace == "" {
		c.namespace = server.Namespace
	}
	q := url.Values{"kind": {kind}, "namespace": {c.namespace}, "name": {name}}
	var a why.Answer
	if err := server.JSON(cmd.Context(), why.Path+"?"+q.Encode(), &a); err != nil {
		return err
	}
	return c.print(cmd.OutOrStdout(), a)
}

func (c *command) print(out io.Writer, a why.Answer) error {
	if c.output.JSON() {
		return commandline.PrintJSON(out, a)
	}
	fmt.Fprintln(out, a.Sentence)
	if len(a.Evidence) > 0 {
		fmt.Fprintln(out)
		for _, e := range a.Evidence {
			fmt.Fprintln(out, "  -", e)
		}
	}
	if a.Do != "" {
		fmt.Fprintln(out, "\nWhat to do:", a.Do)
	}
	return nil
}
