package cmd

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why"
)

type whyOptions struct {
	local.Place
	namespace string
	wait      bool
	timeout   time.Duration
	output    commandline.Output
}

// whyCommand is `monopod why`, which explains in plain words why an object is as it is, or all that is wrong now.
// dataDir is the default of --data-dir.
func whyCommand(dataDir string) *cobra.Command {
	c := &whyOptions{Place: local.Place{DataDir: dataDir}}
	cmd := &cobra.Command{
		Use:     "why [KIND/NAME]",
		GroupID: Look,
		Short:   "Explain why an object is as it is, or all that is wrong now: the cause, the evidence, and what to do",
		Long: "why reads an object, its events, its pods, what it refers to, and the ends of the logs of containers that\n" +
			"failed, with the rights of the user. It prints one sentence with the cause, then the evidence, then what to do.\n" +
			"It explains pods, Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs, Services, Ingresses,\n" +
			"claims, nodes, namespaces, quotas, autoscalers, disruption budgets, webhooks and requests for certificates, and\n" +
			"the conditions of all other kinds, custom ones included.\n\n" +
			"Without an object it explains what is wrong now, the worst first, in all namespaces unless --namespace is set;\n" +
			fmt.Sprintf("at most %d objects. The exit code is 0 if nothing is wrong, otherwise 1.", why.MaxProblems),
		Example: "  monopod why\n  monopod why pod/web-0\n  monopod why deploy/web -n shop\n" +
			"  monopod why node/box -o json\n  monopod why --wait --timeout 2m",
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args)
		},
	}
	cmd.ValidArgsFunction = completeObjects(&c.Place, &c.namespace, false)
	c.Flags(cmd.Flags())
	cmd.Flags().StringVarP(&c.namespace, "namespace", "n", "",
		"Namespace of the object (default that of the kubeconfig, or default); without an object, all namespaces by default.")
	cmd.Flags().BoolVar(&c.wait, "wait", false, "Wait until nothing is wrong with the object, or with anything.")
	cmd.Flags().DurationVar(&c.timeout, "timeout", 5*time.Minute, "Maximum time for --wait; the exit code is 1 then.")
	c.output.Flags(cmd.Flags(),
		" with the fields sentence, evidence and do; without an object, a list of these in problems")
	return cmd
}

func (c *whyOptions) run(cmd *cobra.Command, args []string) error {
	if err := c.output.Check(); err != nil {
		return err
	}
	kind, name, ok := strings.Cut(strings.Join(args, "/"), "/")
	if len(args) > 0 && (!ok || kind == "" || name == "" || strings.Contains(name, "/")) {
		return fmt.Errorf("the object must be given as KIND/NAME, for example pod/web-0, got %q", strings.Join(args, " "))
	}
	server, err := c.Open()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		var r why.Report
		wrong, err := c.poll(cmd.Context(), func() (bool, error) {
			r = why.Report{}
			err := server.JSON(cmd.Context(), why.Path+"?"+url.Values{"namespace": {c.namespace}}.Encode(), &r)
			return len(r.Problems) > 0, err
		})
		if err == nil {
			err = c.printReport(cmd.OutOrStdout(), r)
		}
		return exitIf(wrong, err)
	}
	if c.namespace == "" {
		c.namespace = server.Namespace
	}
	q := url.Values{"kind": {kind}, "namespace": {c.namespace}, "name": {name}}
	var a why.Answer
	wrong, err := c.poll(cmd.Context(), func() (bool, error) {
		a = why.Answer{}
		err := server.JSON(cmd.Context(), why.Path+"?"+q.Encode(), &a)
		return a.Do != "", err
	})
	if err == nil {
		err = c.print(cmd.OutOrStdout(), a)
	}
	return exitIf(wrong && c.wait, err)
}

// exitIf returns the error for the exit code 1 if something is wrong.
func exitIf(wrong bool, err error) error {
	if err == nil && wrong {
		return &commandline.Exit{Code: 1}
	}
	return err
}

// waitInterval is the interval of requests of --wait.
const waitInterval = 500 * time.Millisecond

// poll calls ask once, or with --wait until nothing is wrong or the timeout. It returns the last result.
func (c *whyOptions) poll(ctx context.Context, ask func() (wrong bool, err error)) (bool, error) {
	over := time.After(c.timeout)
	for {
		wrong, err := ask()
		if err != nil || !wrong || !c.wait {
			return wrong, err
		}
		select {
		case <-ctx.Done():
			return wrong, ctx.Err()
		case <-over:
			return wrong, nil
		case <-time.After(waitInterval):
		}
	}
}

func (c *whyOptions) print(out io.Writer, a why.Answer) error {
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

func (c *whyOptions) printReport(out io.Writer, r why.Report) error {
	if c.output.JSON() {
		return commandline.PrintJSON(out, r)
	}
	if len(r.Problems) == 0 {
		fmt.Fprintln(out, "Nothing is known to be wrong.")
	}
	for i, p := range r.Problems {
		if i > 0 {
			fmt.Fprintln(out)
		}
		at := strings.ToLower(p.Kind) + "/" + p.Name
		if p.Namespace != "" {
			at += " -n " + p.Namespace
		}
		fmt.Fprintf(out, "%s\n  %s\n  What to do: %s\n", at, p.Sentence, p.Do)
	}
	if r.More > 0 {
		fmt.Fprintf(out, "\nand %s that may be wrong, too\n", words.Count(r.More, "object"))
	}
	for _, hidden := range r.Hidden {
		fmt.Fprintln(out, "not known:", hidden)
	}
	if len(r.Problems) > 0 {
		fmt.Fprintln(out, "\nThe evidence: monopod why KIND/NAME -n NAMESPACE")
	}
	return nil
}
