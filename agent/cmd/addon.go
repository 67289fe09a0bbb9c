package cmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/cmd/addon"
	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/status"
)

type addonOptions struct {
	local.Place
	addon.Options
	files  []string
	output commandline.Output
}

// addonCommand is `monopod addon`, which adds sets of objects to a running server. dataDir is the default of
// --data-dir.
func addonCommand(dataDir string) *cobra.Command {
	root := &cobra.Command{
		Use:     "addon",
		GroupID: Maintain,
		Short:   "List, enable and disable addons: sets of objects from the program or from files",
		Long: "addon adds what many clusters need to a running server, with the rights of the user and without a network:\n" +
			"objects that are built into the program, or manifests from files. It records each object that it creates, so\n" +
			"that the addon can be updated and removed as a whole.",
		Example: "  monopod addon list\n  monopod addon enable gateway-api\n" +
			"  monopod addon enable cert-manager-crds --file cert-manager.crds.yaml\n  monopod addon disable gateway-api",
		Args: cobra.NoArgs,
	}
	for _, make := range []func(*addonOptions) *cobra.Command{addonList, addonEnable, addonDisable} {
		c := &addonOptions{Place: local.Place{DataDir: dataDir}}
		sub := make(c)
		c.Place.Flags(sub.Flags())
		if sub.Name() != "list" {
			sub.Flags().DurationVar(&c.Timeout, "timeout", 2*time.Minute,
				"Maximum time to wait for each definition to be served, or for each deleted object to be gone.")
			sub.ValidArgsFunction = completeAddons(c, sub.Name() == "enable")
		}
		root.AddCommand(sub)
	}
	return root
}

func addonList(c *addonOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the addons that are built in or enabled, with their states and versions",
		Long: "list shows the addons in the program, and those that were enabled from files. One is incomplete if\n" +
			"objects of it are missing, or were replaced: enable it again.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.output.Check(); err != nil {
				return err
			}
			server, err := c.Open()
			if err != nil {
				return err
			}
			all, err := addon.Of(server, cmd.OutOrStdout(), cmd.ErrOrStderr()).List(cmd.Context())
			if err != nil {
				return err
			}
			if c.output.JSON() {
				return commandline.PrintJSON(cmd.OutOrStdout(), map[string]any{"addons": all})
			}
			return printAddons(cmd.OutOrStdout(), all)
		},
	}
	c.output.Flags(cmd.Flags(), ", an object with the list addons")
	return cmd
}

func printAddons(out io.Writer, all []addon.Status) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tVERSION\tDESCRIPTION")
	for _, a := range all {
		version := a.Version
		switch {
		case version == "":
			version = "-"
		case a.BuiltIn != "" && a.BuiltIn != version:
			version += " (built in: " + a.BuiltIn + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", a.Name, a.State, version, a.Description)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, a := range all {
		if len(a.Missing) == 0 {
			continue
		}
		again := "monopod addon enable " + a.Name
		if a.BuiltIn == "" {
			again += " --file FILE"
		}
		fmt.Fprintf(out, "\n%s lacks: %s\nEnable it again: %s\n", a.Name, strings.Join(a.Missing, ", "), again)
	}
	return nil
}

func addonEnable(c *addonOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enable NAME",
		Short: "Create or update the objects of an addon, built in or from files",
		Long: "enable checks the objects of an addon with a dry run, then applies them: namespaces and definitions of\n" +
			"custom kinds first. If that fails for a new addon, nothing is kept. Enabling an addon again updates it, and\n" +
			"deletes objects that it no longer has. Objects that others created are refused, unless --force takes them over.",
		Example: "  monopod addon enable gateway-api\n" +
			"  monopod addon enable cert-manager-crds --file cert-manager.crds.yaml\n" +
			"  kubectl kustomize ./site | monopod addon enable site --file -",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.enable(cmd, args[0]) },
	}
	cmd.Flags().StringArrayVarP(&c.files, "file", "f", nil,
		"Manifests of the addon: a file, a folder, or - for standard input; may be repeated (default the addon in the "+
			"program).")
	cmd.Flags().BoolVar(&c.Force, "force", false,
		"Take over objects that others created, and fields that others set. The objects stay when the addon is disabled.")
	cmd.Flags().BoolVar(&c.DeleteObjects, "delete-objects", false,
		"Also delete the custom objects of definitions, and the contents of namespaces, that the addon no longer has.")
	return cmd
}

func (c *addonOptions) enable(cmd *cobra.Command, name string) error {
	server, err := c.Open()
	if err != nil {
		return err
	}
	var set addon.Set
	if len(c.files) > 0 {
		set, err = addon.Read(name, c.files, cmd.InOrStdin())
	} else {
		set, err = addon.BuiltIn(name)
	}
	if err != nil {
		return err
	}
	if err := addon.Of(server, cmd.OutOrStdout(), cmd.ErrOrStderr()).Enable(cmd.Context(), set, c.Options); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "addon %s enabled\n", name)
	if len(c.files) == 0 {
		if use := addon.Use(name, apiAddress(cmd.Context(), server)); use != "" {
			fmt.Fprint(cmd.OutOrStdout(), "\n", use)
		}
	}
	return nil
}

// apiAddress returns the address of the API, https://HOST:PORT; through the socket, the one that the server states.
func apiAddress(ctx context.Context, server *local.Server) string {
	if !server.Local() {
		return server.URL
	}
	var about status.Process
	if err := server.JSON(ctx, status.Path, &about); err != nil || about.Address == "" {
		return "https://HOST:6443"
	}
	return about.Address
}

func addonDisable(c *addonOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disable NAME",
		Short: "Delete the objects of an addon, and wait until they are gone",
		Long: "disable deletes the objects that the addon created, in reverse order. Objects that others created or\n" +
			"replaced stay. It refuses while custom objects of the addon's definitions, or others' claims, workloads and\n" +
			"pods in its namespaces, would be deleted too, unless --delete-objects.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := c.Open()
			if err != nil {
				return err
			}
			addons := addon.Of(server, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err := addons.Disable(cmd.Context(), args[0], c.Options); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "addon %s disabled\n", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&c.DeleteObjects, "delete-objects", false,
		"Also delete the custom objects of the addon's definitions, and everything in its namespaces.")
	return cmd
}

// completeAddons completes the name of an addon: those that are enabled, with all also those in the program.
func completeAddons(c *addonOptions, all bool) completionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a := newCompleter(cmd, &c.Place, nil)
		defer a.end()
		var list metav1.PartialObjectMetadataList
		a.read(addon.InventoriesPath(), &list)
		var names []string
		if all {
			names = addon.Names()
		}
		for _, item := range list.Items {
			if name := item.Labels[addon.Label]; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
